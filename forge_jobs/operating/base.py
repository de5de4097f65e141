"""The base of all parts of an operator."""

from abc import ABC
from collections.abc import Sequence

from msgspec import structs

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Forbidden, NotFound
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import Job
from forge_jobs.model.queries.terms import InPayload
from forge_jobs.operating.access import REVEAL_JOB, Actor, Right
from forge_jobs.operating.hiding import hide_line, hide_texts, shown
from forge_jobs.operating.redaction import NO_REDACTION, Redaction, clean_line
from forge_jobs.storage.protocols import Storage


class Calls(ABC):
    """A part of the methods of an operator."""

    storage: Storage
    actor: Actor
    client: JobClient
    redaction: Redaction = NO_REDACTION

    def _may_see(self, queue: str) -> None:
        """Refuse a queue that is closed to the actor.

        :raises NotFound: as for a queue that does not exist
        """
        if not self.actor.sees(queue):
            raise NotFound(f"there is no queue {queue!r}; forge-jobs queues list names all")

    def _may_use(self, queue: str) -> None:
        """Refuse an actor who may not put something into a queue.

        :raises Forbidden: names the right
        """
        if not self.actor.sees(queue):
            raise Forbidden(self.actor.name, Right.QUEUES.value)

    def _readable(self, job: Job) -> Job:
        """The job without what the actor must not read."""
        job = shown(job, self.redaction)
        return job if self.actor.access.payloads else hide_texts(job)

    async def _stored(self, job_id: str) -> Job:
        """A job that is open to the actor, as stored.

        :raises NotFound: there is no such job
        """
        job = await self.client.get(job_id)
        if job is None or not self.actor.sees(job.queue):
            raise missing(job_id)
        return job

    def _within(self, which: JobFilter) -> JobFilter:
        """The filter, of the queues that are open to the actor.

        :raises Forbidden: the filter asks what payloads or errors hold, and the actor may not know
        """
        if any(term.name != "group" for term in which.deep):
            self.actor.need(Right.PAYLOADS)
            self._may_search(which)
        mine = self.actor.access.queues
        if mine is None:
            return which
        queues = tuple(sorted(mine.intersection(which.queues) if which.queues else mine))
        # Without any queue the filter would mean all of them.
        if not queues:
            return JobFilter(ids=())
        return structs.replace(which, queues=queues)

    def _may_search(self, which: JobFilter) -> None:
        """Refuse a search for what hidden fields may hold.

        :raises Forbidden: names the right to reveal
        """
        if not self.redaction or self.actor.access.allows(REVEAL_JOB):
            return
        for term in which.deep:
            looks = not isinstance(term, InPayload) or self.redaction.looks_into(term.path)
            if looks and term.name != "group":
                raise Forbidden(self.actor.name, Right.ACTIONS.value, REVEAL_JOB)

    async def _lines(self, lines: Sequence[JobSummary]) -> tuple[JobSummary, ...]:
        """Lines of jobs as the actor may read them."""
        if not self.actor.access.payloads:
            return tuple(hide_line(line) for line in lines)
        ids = [line.id for line in lines if line.last_error] if self.redaction else []
        if not ids:
            return tuple(lines)
        jobs = await self.storage.jobs.get(ids)
        return tuple(
            clean_line(line, self.redaction.texts(jobs[line.id]))
            if line.id in jobs
            # Of a job that is gone nothing says what the error may hold.
            else hide_line(line)
            if line.last_error
            else line
            for line in lines
        )


def missing(job_id: str) -> NotFound:
    """Return the refusal of a job that does not exist, or is closed to the actor."""
    return NotFound(f"no job has the id {job_id}; its retention is over, or the store is another")
