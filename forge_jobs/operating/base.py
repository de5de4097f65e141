"""The base of all parts of an operator."""

from abc import ABC

from msgspec import structs

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Forbidden, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Job
from forge_jobs.operating.access import Actor, Right
from forge_jobs.operating.hiding import hide_texts, shown
from forge_jobs.storage.protocols import Storage


class Calls(ABC):
    """A part of the methods of an operator."""

    storage: Storage
    actor: Actor
    client: JobClient

    def _may_see(self, queue: str) -> None:
        """Refuse a queue that is closed to the actor.

        :raises NotFound: as for a queue that does not exist
        """
        if not self.actor.sees(queue):
            raise NotFound(f"there is no queue {queue!r}")

    def _may_use(self, queue: str) -> None:
        """Refuse an actor who may not put something into a queue.

        :raises Forbidden: names the right
        """
        if not self.actor.sees(queue):
            raise Forbidden(self.actor.name, Right.QUEUES.value)

    def _readable(self, job: Job) -> Job:
        """The job without what the actor must not read."""
        job = shown(job)
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
        mine = self.actor.access.queues
        if mine is None:
            return which
        queues = tuple(sorted(mine.intersection(which.queues) if which.queues else mine))
        # Without any queue the filter would mean all of them.
        if not queues:
            return JobFilter(ids=())
        return structs.replace(which, queues=queues)


def missing(job_id: str) -> NotFound:
    """Return the refusal of a job that does not exist, or is closed to the actor."""
    return NotFound(f"no job has the id {job_id}; its retention is over, or the store is another")
