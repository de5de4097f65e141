"""Records of an outbox that are to be sent again, and others that wait for these."""

from collections.abc import Collection, Iterable
from datetime import timedelta

from msgspec import Struct

from forge_jobs.clock import Clock
from forge_jobs.errors import Locked, StorageRefused, Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.letters.outbox import OutboxJob
from forge_jobs.outages import Pauses

_EARLY = timedelta(minutes=1)
_MOST_EARLY = 100
"""A job may come after one whose transaction is about to be committed. Records so young are sent
again, so many at a time, before the job that they name is taken for one that never comes."""

_PAUSES = Pauses(1.0, 30.0)
"""Pauses before a record is sent again."""

_FORGOTTEN_AFTER_S = 300.0

Key = tuple[str, ...]
"""Records have a queue, a unique key or a sequence in common."""


_AWAY: Key = ()
"""Of records that were put off because a part of the store was silent. While one of these is put
off, the others are."""


class _PutOff(Struct, frozen=True):
    """A record that is to be sent again.

    :param since: by the clock of this program, when the record was put off first
    :param due_at: by the same clock
    :param times: that the record was put off, without those for another record
    :param keys: later records with one of these wait for this one
    :param is_early: the job comes after one that is not known yet
    """

    since: float
    due_at: float
    times: int
    job_id: JobId
    keys: Collection[Key] = ()
    is_early: bool = False


class Later:
    """Records that were put off. Those that have to come after one of these wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the number of the record.
        self._records: dict[int, _PutOff] = {}
        self._numbers: dict[JobId, int] = {}
        # The first record of this pass that holds a key, and until when.
        self._held: dict[Key, tuple[int, float]] = {}

    def begin(self) -> set[int]:
        """Begin a pass, and return the numbers of records that are not due in it."""
        now = self._clock.elapsed()
        # What has not come again is gone: another relay has stored it.
        gone = now - _FORGOTTEN_AFTER_S
        self.forget([each for each, kept in self._records.items() if kept.due_at <= gone])
        waits = {each: kept for each, kept in self._records.items() if kept.due_at > now}
        self._held = {}
        for number, kept in waits.items():
            self._hold(number, kept)
        return set(waits)

    def ready(self, part: Iterable[OutboxJob]) -> list[OutboxJob]:
        """Put off the records that wait for an earlier one, and return those to be sent."""
        if not self._held:
            return list(part)
        free: list[OutboxJob] = []
        for each in part:
            kept = self._records.get(each.number)
            keys = [*_keys_of(each), *(kept.keys if kept else ())]
            holders = [self._held[key] for key in keys if key in self._held]
            before, until = min(holders, default=(each.number + 1, 0.0))
            if before > each.number:
                free.append(each)
            elif before < each.number:
                if kept is None:
                    self._keep(each, until, 0, _line_of(each))
                else:
                    self._keep(each, until, kept.times, kept.keys)
        return free

    def put_off(
        self, record: OutboxJob, error: Exception | None = None, *, is_early: bool = False
    ) -> int:
        """Note when to send the record again, and return how often it was put off."""
        keys = _line_of(record)
        if isinstance(error, Locked):
            keys += _unique_key_of(record)
        elif isinstance(error, Unavailable) and not isinstance(error, StorageRefused):
            keys.append(_AWAY)
        return self._again(record, keys, is_early)

    def put_off_queues(self, part: Iterable[OutboxJob], queues: Collection[str]) -> list[OutboxJob]:
        """Put off the first record of each of these queues, for which the others wait.

        :returns: those that were not put off before
        """
        firsts: dict[Key, OutboxJob] = {}
        for each in part:
            firsts.setdefault(_queue_of(each), each)
        return [
            each
            for queue, each in firsts.items()
            if queue[0] in queues and self._again(each, [queue], False) == 1
        ]

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget records that are stored or set aside."""
        for number in numbers:
            kept = self._records.pop(number, None)
            if kept is not None and self._numbers.get(kept.job_id) == number:
                del self._numbers[kept.job_id]

    def has_parent_of(self, record: OutboxJob) -> bool:
        """Return whether a job that the record names in ``after`` is itself to be sent again."""
        return record.job is not None and any(
            each.job_id in self._numbers for each in record.job.after
        )

    def is_early(self, record: OutboxJob) -> bool:
        """Return whether the job that the record comes after may be committed in a moment."""
        if record.age >= _EARLY:
            return False
        if (kept := self._records.get(record.number)) is None:
            return sum(each.is_early for each in self._records.values()) < _MOST_EARLY
        # The clock of the database may have been set back, and then the record is young for long.
        return self._clock.elapsed() - kept.since < _EARLY.total_seconds()

    def _again(self, record: OutboxJob, keys: Collection[Key], is_early: bool) -> int:
        before = self._records.get(record.number)
        times = 1 if before is None else before.times + 1
        self._keep(record, self._clock.elapsed() + _PAUSES.after(times), times, keys, is_early)
        return times

    def _keep(
        self,
        record: OutboxJob,
        due_at: float,
        times: int,
        keys: Collection[Key],
        is_early: bool = False,
    ) -> None:
        job_id = JobId("") if record.job is None else record.job.id
        before = self._records.get(record.number)
        since = self._clock.elapsed() if before is None else before.since
        kept = _PutOff(since, due_at, times, job_id, keys, is_early)
        self._records[record.number] = kept
        self._numbers[job_id] = record.number
        self._hold(record.number, kept)

    def _hold(self, number: int, kept: _PutOff) -> None:
        for key in kept.keys:
            first = self._held.get(key)
            if first is None or number < first[0]:
                self._held[key] = number, kept.due_at


def _queue_of(record: OutboxJob) -> Key:
    return ("" if record.job is None else record.job.queue,)


def _unique_key_of(record: OutboxJob) -> list[Key]:
    job = record.job
    return [] if job is None or job.unique is None else [(job.queue, "unique", job.unique.key)]


def _line_of(record: OutboxJob) -> list[Key]:
    job = record.job
    return [] if job is None or job.sequence is None else [(job.queue, "line", job.sequence.key)]


def _keys_of(record: OutboxJob) -> list[Key]:
    return [_queue_of(record), *_unique_key_of(record), *_line_of(record)]
