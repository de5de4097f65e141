"""Reads and changes of jobs."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import UNSET, structs

from forge_jobs.clients.forecasts import explained
from forge_jobs.errors import DecryptionFailed, InvalidInput, KeyMissing, NotFound
from forge_jobs.handlers.preparing import check_request, unencrypted
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.actions import ActionState
from forge_jobs.model.edges import Kin
from forge_jobs.model.edits import version_of
from forge_jobs.model.events import timeline_of
from forge_jobs.model.filters import (
    MOST_COUNTED,
    BulkOutcome,
    Count,
    JobFilter,
    JobOrder,
    Page,
    Refusal,
)
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import EnqueueOutcome, Job
from forge_jobs.model.names import check_name
from forge_jobs.model.progress import JobState, LogPage
from forge_jobs.operating.access import REVEAL_JOB, Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.base import missing
from forge_jobs.operating.documents import widened
from forge_jobs.operating.hiding import OURS, hide_state, hide_timeline
from forge_jobs.operating.jobs.documents import (
    Changed,
    JobDeed,
    JobExplanation,
    JobKin,
    JobResult,
    JobView,
    RevealedJob,
    Timeline,
)
from forge_jobs.operating.kinds.schemas import known_kind
from forge_jobs.operating.metrics.latencies import LAST_HOUR, Stats, read_stats
from forge_jobs.operating.redaction import clean_events, clean_log, clean_state
from forge_jobs.operating.settings.outbox import unrelayed
from forge_jobs.policy.timelines import spans_of, stage_at
from forge_jobs.privacy.secrets import SECRETS, readable

_ACTIONS = 1_000
_ASKED = 20
"""So many of the newest actions on many are asked whether they met the job."""


class JobCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    handlers: HandlerRegistry | None

    async def list_jobs(
        self,
        which: JobFilter | None = None,
        *,
        order: JobOrder = "id",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """A page of matching jobs. See ``JobClient.list``.

        :param limit: 1 to 1,000
        """
        self.actor.need(Right.READ)
        page = await self.client.list(
            self._within(which or JobFilter()), order=order, cursor=cursor, limit=limit
        )
        return structs.replace(page, jobs=await self._lines(page.jobs))

    async def count_jobs(
        self,
        which: JobFilter | None = None,
        *,
        at_most: int = MOST_COUNTED,
        cursor: str | None = None,
    ) -> Count:
        """The number of matching jobs, exact or a lower bound. See ``JobClient.count``."""
        self.actor.need(Right.READ)
        return await self.client.count(
            self._within(which or JobFilter()), at_most=at_most, cursor=cursor
        )

    async def get_job(self, job_id: str) -> JobView:
        """All of one job, secrets hidden, with progress and timeline.

        :raises NotFound: there is no such job
        """
        self.actor.need(Right.READ)
        stored = await self._stored(job_id)
        job, secrets = self._readable(stored), self._texts(stored)
        events = await self.storage.jobs.events(job_id=job.id)
        state = (await self.storage.jobs.states([job.id])).get(job.id)
        timeline = tuple(timeline_of(job, events))
        timeline = clean_events(timeline, secrets)
        state = clean_state(state, secrets) if state else None
        if not self.actor.access.payloads:
            state, timeline = hide_state(state), hide_timeline(timeline)
        return widened(
            JobView,
            job,
            progress=state.progress if state else None,
            events=timeline,
            version=version_of(stored),
            is_hidden=self._is_hidden(stored),
        )

    async def explain_job(self, job_id: str) -> JobExplanation:
        """Why a job does not run, since when, until when, and what helps.

        Also of a job that is in an outbox of this database, for an actor of all queues.

        :raises NotFound: there is no such job
        """
        try:
            job = await self._job(job_id)
        except NotFound:
            found = await unrelayed(self.storage, self.actor.access, JobId(job_id))
            if found is None:
                raise
            return widened(JobExplanation, found, job_id=JobId(job_id))
        return widened(JobExplanation, await explained(self.storage, job), job_id=job.id)

    async def job_timeline(self, job_id: str, *, at: datetime | None = None) -> Timeline:
        """The life of a job: each state with its length, runs with their pods, and what operators
        did.

        :param at: an aware datetime: ``asked`` is the state then. None: the present one
        :raises NotFound: there is no such job
        :raises InvalidInput: the instant has no time zone
        """
        if at is not None and at.tzinfo is None:
            raise InvalidInput("at", "has no time zone", "give an instant with an offset")
        self.actor.need(Right.READ)
        stored = await self._stored(job_id)
        job = self._readable(stored)
        told = await self.storage.jobs.events(job_id=job.id, limit=1000)
        events, spans = tuple(timeline_of(job, told)), spans_of(job, told)
        events = clean_events(events, self._texts(stored))
        if not self.actor.access.payloads:
            events = hide_timeline(events)
        return Timeline(
            job_id=job.id,
            events=events,
            spans=spans,
            deeds=await self._deeds(job),
            asked=stage_at(spans, at or await self.storage.cron.now()),
        )

    async def _deeds(self, job: Job) -> tuple[JobDeed, ...]:
        """Return the actions of operators that met the job, oldest first."""
        found: list[JobDeed] = []
        actions = await self.storage.jobs.actions(limit=_ACTIONS)
        asked = 0
        for action in (record.action for record in actions):
            if action.at is None or action.at < job.enqueued_at:
                continue
            if action.settled is ActionState.ABORTED:
                continue
            is_named = job.id == action.target
            if action.undoes and job.queue in action.queues:
                is_named = await self._met(action.id, job)
            elif action.which is not None and job.queue in action.queues:
                is_named = action.which.ids is not None and job.id in action.which.ids
                if action.which.ids is None and asked < _ASKED:
                    asked += 1
                    is_named = await self._met(action.id, job)
            if is_named:
                deed = JobDeed(
                    at=action.at,
                    action_id=action.id,
                    actor=action.actor,
                    verb=action.verb,
                    reason=action.reason if self.actor.access.payloads else "",
                )
                found.append(deed)
        return tuple(reversed(found))

    async def _met(self, action_id: str, job: Job) -> bool:
        # An id that begins alike comes before, and seldom does another id in between.
        before = job.id[:-1]
        return job.id in await self.storage.jobs.action_jobs(action_id, beyond=before, limit=5)

    async def job_kin(self, job_id: str, *, limit: int = 100) -> JobKin:
        """The jobs that a job comes after, and those that come after this job, with their states.

        Relatives in queues that are closed to the actor are left out, and so are removed ones for
        an actor of some queues.

        :param limit: 1 to 10,000 in each direction
        :raises NotFound: there is no such job
        """
        job = await self._job(job_id)
        kin = (await self.storage.jobs.kin([job.id], limit=limit)).get(job.id, Kin())
        return JobKin(
            job_id=job.id,
            parents=tuple(each for each in kin.parents if self.actor.sees(each.queue)),
            children=tuple(each for each in kin.children if self.actor.sees(each.queue)),
            more_parents=kin.more_parents,
            more_children=kin.more_children,
        )

    async def job_log(
        self, job_id: str, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        """Lines that the handler has logged with ``ctx.log``. See ``JobClient.log``.

        :param limit: 1 to 1,000
        :raises NotFound: there is no such job
        """
        self.actor.need(Right.PAYLOADS)
        state = await self.job_progress(job_id)
        page = await self.client.log(state.id, attempt=attempt, after=after, limit=limit)
        return clean_log(page, await self._texts_of(state.id))

    async def job_progress(self, job_id: str) -> JobState:
        """The status, the attempt and the progress of a job.

        :raises NotFound: there is no such job
        """
        self.actor.need(Right.READ)
        wanted = check_job_id(job_id, "job_id")
        state = (await self.storage.jobs.states([wanted])).get(wanted)
        if state is None or not self.actor.sees(state.queue):
            raise missing(job_id)
        if not self.actor.access.payloads:
            return hide_state(state)
        return clean_state(state, await self._texts_of(state.id))

    async def job_result(self, job_id: str) -> JobResult:
        """The result of a job, None when there is none.

        :raises NotFound: there is no such job
        """
        self.actor.need(Right.PAYLOADS)
        job = await self._job(job_id)
        return JobResult(job_id=job.id, status=job.status.value, result=job.result)

    async def queue_stats(self, names: Iterable[str] = (), *, over: timedelta = LAST_HOUR) -> Stats:
        """How attempts of the last ``over`` ended and how long they took, per queue.

        :param names: of queues. Empty: all
        """
        self.actor.need(Right.READ)
        wanted = [check_name("queue", name) for name in names]
        for name in wanted:
            self._may_see(name)
        known = wanted or [state.name for state in await self.storage.config.queues()]
        mine = [name for name in known if self.actor.sees(name)]
        return Stats(tuple(await read_stats(self.storage, mine, over)))

    # -- changes -----------------------------------------------------------------------------

    async def enqueue(self, request: EnqueueRequest) -> EnqueueOutcome:
        """Store one job. See ``JobClient.enqueue``.

        Where the program has no handler of the kind, what pods publish of the kind counts: the
        schema of the payload, which fields are secret, and the options that are left out.

        :raises InvalidInput: a value is wrong, or payloads of the kind are encrypted and the key is
            not here
        """
        self.actor.act("enqueue")
        request = await self._completed(request)
        if self.actor.access.queues is not None:
            [job] = await self.client.prepared([request])
            self._may_use(job.queue)
            request = request.options(queue=job.queue)
        return await self.client.enqueue(request)

    async def _completed(self, request: EnqueueRequest) -> EnqueueRequest:
        check_request(request)
        if request.handler_options is not None or (self.handlers and request.kind in self.handlers):
            return request
        known = await known_kind(self.storage, self.handlers, request.kind)
        entry = known.entry
        if entry is None:
            return request
        known.check(unencrypted(request)[0].payload)
        queue = entry.queue
        if queue is None and request.queue is UNSET:
            queue = await self.client.queue_of(request.kind)
        defaults = structs.replace(known.options, queue=queue)
        # A key that is derived belongs to the kind, and not to another name of the kind.
        kind = entry.kind if entry.unique is not None else request.kind
        return structs.replace(request, kind=kind, handler_options=defaults)

    async def cancel_jobs(self, which: JobFilter, *, reason: str = "") -> Changed:
        """Cancel waiting jobs, and ask the owners of running ones to stop."""
        return await self._change("cancel_jobs", which, reason)

    async def requeue_jobs(self, which: JobFilter, *, reason: str = "") -> Changed:
        """Give retrying, dead and cancelled jobs all their attempts again."""
        return await self._change("requeue_jobs", which, reason)

    async def restore_jobs(self, which: JobFilter, *, reason: str = "") -> Changed:
        """Take cancels back: jobs wait again with their old time and attempts.

        Refused where children went on or ended with the job, or another job has the unique key.
        """
        return await self._change("restore_jobs", which, reason)

    async def delete_jobs(self, which: JobFilter, *, reason: str = "") -> Changed:
        """Remove jobs for good. Running jobs are refused."""
        return await self._change("delete_jobs", which, reason)

    async def release_held_jobs(self, which: JobFilter, *, reason: str = "") -> Changed:
        """Let blocked jobs run without the unsuccessful jobs that hold them."""
        return await self._change("release_held_jobs", which, reason)

    async def run_jobs_now(self, which: JobFilter, *, reason: str = "") -> Changed:
        """Make jobs that wait for their time or their retry due now."""
        return await self._change("run_jobs_now", which, reason)

    async def _change(self, verb: str, which: JobFilter, reason: str) -> Changed:
        self.actor.act(verb)
        return await self._visited(verb, which, reason)

    async def _visited(self, verb: str, which: JobFilter, reason: str) -> Changed:
        total, meant = Changed(), self._within(which)
        queues, found = await self._queues_of(meant)
        action = self._action(verb, which=meant, queues=tuple(queues), reason=reason)

        def heard(outcome: BulkOutcome) -> None:
            total.changed += outcome.changed
            total.requested += outcome.requested
            total.refused.update(outcome.refused)

        await self.storage.jobs.put_action(action)
        await self._drive(action, heard)
        # Jobs of a closed queue are as those that do not exist.
        total.refused.update((job_id, Refusal.NOT_FOUND) for job_id in set(which.ids or ()) - found)
        return Changed(
            changed=sorted(total.changed),
            requested=sorted(total.requested),
            refused=dict(sorted(total.refused.items())),
        )

    async def reveal_job(self, job_id: str, *, reason: str = "") -> RevealedJob:
        """All of one job with its secrets, and with what ``redact=`` hides. Recorded before.

        Encrypted texts are in plain text where the operator has ``handlers`` with the key.

        :param reason: for people. Stays with the record
        :raises NotFound: there is no such job
        :raises Forbidden: the access does not name ``reveal_job``, or lacks ``payloads``
        """
        self.actor.act(REVEAL_JOB)
        stored = await self._stored(job_id)
        action = self._action(REVEAL_JOB, target=stored.id, reason=reason, concerns=(stored.queue,))
        record = await self.storage.jobs.put_action(action)
        with suppress(KeyMissing, DecryptionFailed):
            stored = self.client.decrypted(stored)
        job = structs.replace(
            stored,
            payload=readable(stored.payload, {}),
            result=None if stored.result is None else readable(stored.result, {}),
            metadata={key: text for key, text in stored.metadata.items() if key not in OURS},
        )
        return widened(RevealedJob, job, action_id=record.action.id)

    async def _job(self, job_id: str) -> Job:
        """A job that is open to the actor, without what people must not read."""
        self.actor.need(Right.READ)
        return self._readable(await self._stored(job_id))

    def _texts(self, stored: Job) -> tuple[str, ...]:
        """Values of the job that must not be read in other texts."""
        return self.redaction.texts(stored) if self.redaction else ()

    async def _texts_of(self, job_id: JobId) -> tuple[str, ...]:
        if not self.redaction:
            return ()
        found = await self.storage.jobs.get([job_id])
        return self._texts(found[job_id]) if job_id in found else ()

    def _is_hidden(self, stored: Job) -> bool:
        """Return whether the job has secrets or hidden fields."""
        return bool(
            SECRETS in stored.metadata
            or self.redaction.paths(stored.payload)
            or (stored.result is not None and self.redaction.paths(stored.result))
            or any(self.redaction.hides((name,)) for name in stored.metadata)
        )
