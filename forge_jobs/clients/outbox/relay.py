"""Relays an outbox: stores its jobs on the destination, under the ids that they were given."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec import Struct, structs

from forge_jobs import stop_points
from forge_jobs.clients.outbox.judging import OutboxJudge
from forge_jobs.clock import Clock
from forge_jobs.errors import CONCERNS_ALL, Locked, NotFound, StorageError, StorageRefused
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.letters.outbox import OutboxJob
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import JobStore
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

_EARLY = timedelta(minutes=1)
_MOST_EARLY = 100
"""A job may come after one whose transaction is about to be committed. Records so young are sent
again, so many at a time, before the job that they name is taken for one that never comes."""

_OF_A_RECORD = (TypeError, ValueError, ArithmeticError)
"""Errors of a record with values that no program of ours writes, as a time without a time zone or a
number beyond 64 bits: set aside, so that others go on."""

_PAUSES = Pauses(1.0, 30.0)
"""Pauses before a record is sent again that an unknown reason kept from being stored."""

_FORGOTTEN_AFTER_S = 300.0


class _PutOff(Struct, frozen=True):
    """A record that is to be sent again.

    :param due_at: by the clock of this program
    :param times: that the record was put off
    :param key: queue and unique key of a record that was locked. Others of the key wait for it
    :param is_early: the job comes after one that is not known yet
    """

    due_at: float
    times: int
    job_id: JobId
    key: tuple[str, str] | None = None
    is_early: bool = False


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
    :param jobs: where the jobs are to be stored
    :param judge: of what is stored there
    :param name: of the destination, for the log
    """

    def __init__(
        self, records: OutboxStore, jobs: JobStore, judge: OutboxJudge, name: str, clock: Clock
    ) -> None:
        self._records = records
        self._jobs = jobs
        self._judge = judge
        self._name = name
        self._clock = clock
        # By the number of the record.
        self._later: dict[int, _PutOff] = {}
        self._in_a_row = 0
        self._set_aside = 0

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
        now = self._clock.elapsed()
        # What has not come again is gone: another relay has stored it.
        gone = now - _FORGOTTEN_AFTER_S
        self._later = {number: each for number, each in self._later.items() if each.due_at > gone}
        waits = {number for number, each in self._later.items() if each.due_at > now}
        after = 0
        for _ in range(batches):
            found = await self._records.read(limit, after=after, skip=waits)
            if not found or is_stopping():
                return OutboxReport(relayed, self._set_aside)
            if stop_points.ARMED:
                await stop_points.reach("outbox:read")
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
            if not (part := self._without_locked(parts.pop())):
                continue
            try:
                jobs = [job for each in part if (job := _job_of(each))]
                await self._jobs.enqueue(await self._judge.judged(jobs))
            except (StorageError, *_OF_A_RECORD) as error:
                if isinstance(error, CONCERNS_ALL) and not _may_be_one(error):
                    raise
                if len(part) > 1:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    await self._refused(part[0], error)
            else:
                await self._forget(part)
                sent += len(part)
        return sent

    async def _forget(self, part: Sequence[OutboxJob]) -> None:
        self._in_a_row = 0
        if stop_points.ARMED:
            await stop_points.reach("outbox:stored")
        await self._records.forget([each.number for each in part])
        for each in part:
            self._later.pop(each.number, None)
        if stop_points.ARMED:
            await stop_points.reach("outbox:committed")

    async def _refused(self, record: OutboxJob, error: Exception) -> None:
        if isinstance(error, NotFound):
            if self._comes_after_one_put_off(record):
                self._put_off(record)
                return
            if self._is_early(record):
                if self._put_off(record, is_early=True) == 1:
                    self._warn(record, error)
                return
        if not _may_be_one(error):
            await self._put_aside(record, f"{type(error).__name__}: {error}")
            return
        is_locked = isinstance(error, Locked)
        self._in_a_row += 1
        if self._in_a_row >= (_LOCKED_ALONE if is_locked else _REFUSED_ALONE):
            raise error
        if self._put_off(record, _key_of(record) if is_locked else None) == 1:
            self._warn(record, error)

    def _warn(self, record: OutboxJob, error: Exception) -> None:
        logger.warning(
            "destination %r takes others and not yet record %d of the outbox, which is tried "
            "again with growing pauses: %s",
            self._name,
            record.number,
            error,
        )

    def _without_locked(self, part: Sequence[OutboxJob]) -> Sequence[OutboxJob]:
        """Put off the records whose unique key is locked, and return the others."""
        now = self._clock.elapsed()
        keys = {each.key for each in self._later.values() if each.key and each.due_at > now}
        if not keys:
            return part
        free: list[OutboxJob] = []
        for each in part:
            if _key_of(each) in keys:
                self._put_off(each)
            else:
                free.append(each)
        return free

    def _comes_after_one_put_off(self, record: OutboxJob) -> bool:
        """True when a job that the record names in ``after`` is itself to be sent again."""
        waiting = {each.job_id for each in self._later.values()}
        return record.job is not None and any(each.job_id in waiting for each in record.job.after)

    def _is_early(self, record: OutboxJob) -> bool:
        """True when the job that the record comes after may be committed in a moment."""
        others = sum(each.is_early for each in self._later.values())
        return record.age < _EARLY and (record.number in self._later or others < _MOST_EARLY)

    def _put_off(
        self, record: OutboxJob, key: tuple[str, str] | None = None, *, is_early: bool = False
    ) -> int:
        """Note when to send the record again, and return how often it was put off."""
        before = self._later.get(record.number)
        times = 1 if before is None else before.times + 1
        due_at = self._clock.elapsed() + _PAUSES.after(times)
        job_id = JobId("") if record.job is None else record.job.id
        self._later[record.number] = _PutOff(due_at, times, job_id, key, is_early)
        return times

    async def _put_aside(self, record: OutboxJob, problem: str) -> None:
        await self._records.set_aside(record.number, problem)
        self._later.pop(record.number, None)
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


def _key_of(record: OutboxJob) -> tuple[str, str] | None:
    job = record.job
    return None if job is None or job.unique is None else (job.queue, job.unique.key)


def _job_of(record: OutboxJob) -> NewJob | None:
    """The job, with what is left of its delay: the clocks of the two stores are not compared."""
    job = record.job
    if job is None or job.delay is None:
        return job
    left = job.delay - record.age
    return structs.replace(job, delay=left if left > timedelta(0) else None)
