"""Relays an outbox: stores its jobs on the destination, under the ids that they were given."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct, structs

from forge_jobs import stop_points
from forge_jobs.clients.outbox.judging import OutboxJudge
from forge_jobs.clients.outbox.later import Later
from forge_jobs.clock import Clock
from forge_jobs.errors import (
    CONCERNS_ALL,
    Locked,
    NotFound,
    PartlyUnavailable,
    StorageError,
    StorageRefused,
    Unavailable,
)
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.letters.outbox import OutboxJob
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.protocols.letters import OutboxStore

logger = reporter(__name__)

BATCH = 500
_BATCHES = 20
"""So many batches a pass has at most, so that a pass ends while others write records."""

_REFUSED_ALONE = 2
"""After so many refusals without a success between, the destination refuses everything."""

_LOCKED_ALONE = 20
"""After so many locked records without a success between, a pass ends. Each takes the time that the
destination waits for a lock."""

_DROPPED = 10_000
"""So many dropped jobs are known, so that later records may come after one of them."""

_OF_A_RECORD = (TypeError, ValueError, ArithmeticError)
"""Errors of a record with values that no program of ours writes, as a time without a time zone or a
number beyond 64 bits: set aside, so that others go on."""


class OutboxReport(Struct, frozen=True):
    """The result of one pass.

    :param relayed: records whose jobs are stored
    :param set_aside: records that the destination refuses, kept for a person
    :param more: the pass ended at its bound of 10,000 records, and others may wait
    """

    relayed: int
    set_aside: int
    more: bool = False


class OutboxRelay:
    """Passes over the records of one destination, lowest number first.

    :param records: where the jobs are written down
    :param there: where the jobs are to be stored
    :param judge: of what is stored there
    :param name: of the destination, for the log
    """

    def __init__(
        self, records: OutboxStore, there: Storage, judge: OutboxJudge, name: str, clock: Clock
    ) -> None:
        self._records = records
        self._there = there
        self._jobs = there.jobs
        self._judge = judge
        self._name = name
        self._later = Later(clock)
        # A job that was not stored, as another one holds its key -> that other one.
        self._stands_for: dict[JobId, JobId] = {}
        self._in_a_row = 0
        self._set_aside = 0
        self._has_met = False

    async def relay_once(
        self,
        batch: int = BATCH,
        batches: int = _BATCHES,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> OutboxReport:
        """Relay records that wait. Each is sent once in a pass, and so a pass ends.

        :param is_stopping: asked between two calls of a store. True ends the pass
        :raises StorageError: the database or the destination is away. What is not stored waits
        """
        relayed = self._in_a_row = self._set_aside = 0
        limit = min(batch, self._jobs.enqueue_at_once)
        waits = self._later.begin()
        after = 0
        for _ in range(batches):
            found = await self._records.read(limit, after=after, skip=waits)
            if not found or is_stopping():
                return OutboxReport(relayed, self._set_aside)
            if stop_points.ARMED:
                await stop_points.reach("outbox:read")
            await self._meet_queues()
            relayed += await self._send(found, is_stopping)
            # What commits meanwhile under a lower number is found by the next pass.
            after = found[-1].number
        return OutboxReport(relayed, self._set_aside, more=True)

    async def _send(self, found: Sequence[OutboxJob], is_stopping: Callable[[], bool]) -> int:
        """Send in order. What is at fault is found by halves."""
        parts: list[Sequence[OutboxJob]] = []
        readable: list[OutboxJob] = []
        for each in found:
            if each.job is None:
                await self._put_aside(each, each.problem)
            else:
                readable.append(each)
        if readable:
            parts.append(readable)
        sent = 0
        while parts and not is_stopping():
            if not (part := self._later.ready(parts.pop())):
                continue
            try:
                await self._look_for_dropped(part)
                jobs = [job for each in part if (job := self._job_of(each))]
                self._note_dropped(jobs, await self._jobs.enqueue(await self._judge.judged(jobs)))
            except (StorageError, *_OF_A_RECORD) as error:
                if await self._put_off_silent(part, error):
                    parts.append(part)
                elif len(part) > 1:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    await self._refused(part[0], error)
            else:
                await self._forget(part)
                sent += len(part)
        return sent

    def _job_of(self, record: OutboxJob) -> NewJob | None:
        """The job as it is to be stored: after the holder of a key, in place of a dropped job."""
        job = _job_of(record)
        if job is None or not any(each.job_id in self._stands_for for each in job.after):
            return job
        after = tuple(
            structs.replace(each, job_id=self._stands_for.get(each.job_id, each.job_id))
            for each in job.after
        )
        return structs.replace(job, after=after)

    async def _look_for_dropped(self, part: Sequence[OutboxJob]) -> None:
        """Another relay may have stored a dropped job after all, since the key is free."""
        parents = {after.job_id for each in part if each.job for after in each.job.after}
        if dropped := parents & self._stands_for.keys():
            for stored in await self._jobs.states(sorted(dropped)):
                del self._stands_for[stored]

    def _note_dropped(self, jobs: Sequence[NewJob], outcomes: Sequence[EnqueueOutcome]) -> None:
        """As a store knows the dropped ones of one call, so that batches make no difference."""
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._stands_for.pop(job.id, None)
            if outcome.job_id != job.id:
                self._stands_for[job.id] = outcome.job_id
        while len(self._stands_for) > _DROPPED:
            del self._stands_for[next(iter(self._stands_for))]

    async def _forget(self, part: Sequence[OutboxJob]) -> None:
        self._in_a_row = 0
        if stop_points.ARMED:
            await stop_points.reach("outbox:stored")
        numbers = [each.number for each in part]
        await self._records.forget(numbers)
        self._later.forget(numbers)
        if stop_points.ARMED:
            await stop_points.reach("outbox:committed")

    async def _meet_queues(self) -> None:
        """While the part with the names of queues is silent, a store knows those it has met."""
        if self._there.is_parted and not self._has_met:
            with suppress(Unavailable):
                self._has_met = bool(await self._there.config.queues())

    async def _put_off_silent(self, part: Sequence[OutboxJob], error: Exception) -> bool:
        """Put off the records of queues whose part of the destination is silent. False: it is none.

        :raises StorageError: all of the destination is away
        """
        if not isinstance(error, CONCERNS_ALL) or _may_be_one(error):
            return False
        if not self._there.is_parted or not isinstance(error, Unavailable):
            raise error
        # A call over all queues finds out which ones are silent.
        await self._there.config.queues()
        queues = {each.job.queue for each in part if each.job}
        silent = queues & self._there.health().silent
        for each in self._later.put_off_queues(part, silent):
            self._warn(each, error)
        if silent:
            return True
        needing = await self._needing_silent(part)
        new = [each for each in needing if self._later.put_off(each, error) == 1]
        for each in new[:1]:
            self._warn(each, error)
        return bool(needing)

    async def _needing_silent(self, part: Sequence[OutboxJob]) -> list[OutboxJob]:
        """The records of healthy queues that need a silent part, for their parents or their ids."""
        needs = {each.number: _needed_by(self._job_of(each)) for each in part}
        # A parent that goes along is not asked for elsewhere.
        needed = set().union(*needs.values()) - {each.job.id for each in part if each.job}
        needed |= {each.job.id for each in part if each.job and each.job.id in needs[each.number]}
        try:
            await self._jobs.states(sorted(needed))
        except PartlyUnavailable as error:
            return [each for each in part if not error.unknown.isdisjoint(needs[each.number])]
        except StorageError:
            pass  # found by halves
        return []

    async def _refused(self, record: OutboxJob, error: Exception) -> None:
        later = self._later
        if isinstance(error, NotFound):
            if later.has_parent_of(record):
                later.put_off(record)
                return
            if later.is_early(record):
                if later.put_off(record, is_early=True) == 1:
                    self._warn(record, error)
                return
        if not isinstance(error, CONCERNS_ALL):
            await self._put_aside(record, f"{type(error).__name__}: {error}")
            return
        self._in_a_row += 1
        is_refused = isinstance(error, StorageRefused)
        if self._in_a_row >= (_REFUSED_ALONE if is_refused else _LOCKED_ALONE):
            raise error
        if later.put_off(record, error) == 1:
            self._warn(record, error)

    def _warn(self, record: OutboxJob, error: Exception) -> None:
        logger.warning(
            "destination %r takes others and not yet record %d of the outbox, which is tried "
            "again with growing pauses: %s",
            self._name,
            record.number,
            error,
        )

    async def _put_aside(self, record: OutboxJob, problem: str) -> None:
        await self._records.set_aside(record.number, problem)
        self._later.forget([record.number])
        self._set_aside += 1
        logger.error(
            "record %d of the outbox for %r is set aside until it is retried or discarded, and "
            "others go on: %s",
            record.number,
            self._name,
            problem,
        )


def _may_be_one(error: Exception) -> bool:
    """True when the store answers, and the reason may lie in a single job or pass by itself."""
    return isinstance(error, StorageRefused | Locked)


def _needed_by(job: NewJob | None) -> set[JobId]:
    """The jobs that the store looks for in all queues before this one can be stored.

    Not for the id of the job, where that was made for this job alone.
    """
    if job is None:
        return set()
    needed = {each.job_id for each in job.after}
    return needed | {job.id} if job.fingerprint or job.schedule else needed


def _job_of(record: OutboxJob) -> NewJob | None:
    """The job, with what is left of its delay: the clocks of the two stores are not compared."""
    job = record.job
    if job is None or job.delay is None:
        return job
    left = job.delay - record.age
    return structs.replace(job, delay=left if left > timedelta(0) else None)
