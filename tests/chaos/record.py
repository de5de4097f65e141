"""The faults of a run and their times: the other half of the ledger."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

_WALL_LESS_MONOTONIC_NS = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """The monotonic clock, which all processes of a machine share."""
    return time.monotonic_ns()


def wall_ms(at_ns: int) -> float:
    """A reading of the monotonic clock as milliseconds of the wall clock."""
    return (at_ns + _WALL_LESS_MONOTONIC_NS) / 1_000_000


def monotonic_ns(at: datetime) -> int:
    """A reading of the wall clock as one of the monotonic clock."""
    return int(at.timestamp() * 1e9) - _WALL_LESS_MONOTONIC_NS


ROTATION = "rotate_password"
"""The outage in which logins are refused."""


@dataclass(slots=True)
class Sending:
    """A job as the producer knows it.

    :ivar acked_ns: when ``enqueue`` returned. None: the outcome is not known
    """

    sent_ns: int
    acked_ns: int | None = None
    queue: str = ""
    permit: tuple[str, str] | None = None
    """The limit and the key. None: the job has no limit."""
    line: str = ""
    """The kind and the key of the sequence. Empty: the job is in none."""
    may_come_late: bool = False
    """An operator cancels the job, or others pass its failure: it may run behind later ones."""


@dataclass(slots=True)
class Stop:
    """A SIGTERM."""

    process_id: int
    at_ns: int
    exited_ns: int | None = None
    exit_code: int | None = None


@dataclass(slots=True)
class Outage:
    """A time in which the store, or the way to it, was not as it should be.

    :ivar pods: the process ids that were at work when the outage began
    :ivar refused: no connection could be made. ``to_ns`` is when the store took them again
    """

    name: str
    from_ns: int
    pods: tuple[int, ...]
    refused: bool
    to_ns: int = 0


@dataclass(slots=True)
class ShardLoss:
    """A shard of a cluster without its primary.

    :ivar queues: queues of the shard
    :ivar window_ns: so long after ``from_ns`` no replica could take over, and so long before
        everything was as it should be
    :ivar promoted_ns: when the replica said that it was the primary
    :ivar to_ns: when the shard was whole again
    """

    name: str
    queues: frozenset[str]
    window_ns: int
    from_ns: int
    promoted_ns: int = 0
    to_ns: int = 0


@dataclass
class Record:
    """Everything the program did."""

    sendings: dict[str, Sending] = field(default_factory=dict)
    kills: dict[int, int] = field(default_factory=dict)
    """When, by process id."""
    stops: dict[int, Stop] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    outages: list[Outage] = field(default_factory=list)
    losses: list[ShardLoss] = field(default_factory=list)
    succeeded_ns: dict[int, int] = field(default_factory=dict)
    """When another pod led, by the process id of a leader that was killed or stopped."""
    fenced: set[int] = field(default_factory=set)
    """Processes that could not beat for so long that they gave their jobs up: after a fault of
    the store, and on a machine that is too busy for the pace also without one."""
    own_exits: list[int] = field(default_factory=list)
    """Pods that ended without being asked to."""
    deeds: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def outage(self, name: str, pods: tuple[int, ...], *, refused: bool) -> Iterator[Outage]:
        """Record an outage for the time of the block."""
        outage = Outage(name, now_ns(), pods, refused)
        self.outages.append(outage)
        try:
            yield outage
        finally:
            outage.to_ns = now_ns()

    def was_sound(self, process_id: int) -> bool:
        """Return whether a process kept its leases, and stored everything before it ended."""
        stop = self.stops.get(process_id)
        return (
            process_id not in self.kills
            and process_id not in self.frozen
            and process_id not in self.fenced
            and (stop is None or stop.exit_code == 0)
        )

    def deaths_between(self, from_ns: int, to_ns: int) -> int:
        """How many processes ended in that time without having given their jobs back."""
        ends = [*self.kills.values(), *(stop.exited_ns for stop in self._bad_stops())]
        return sum(from_ns < at_ns < to_ns for at_ns in ends if at_ns is not None)

    def _bad_stops(self) -> Iterator[Stop]:
        return (stop for stop in self.stops.values() if stop.exit_code != 0)

    @property
    def refuses_logins(self) -> bool:
        """Return whether the password of the URL is refused at this moment."""
        return any(outage.name == ROTATION and not outage.to_ns for outage in self.outages)

    def refused_logins_since(self, from_ns: int) -> bool:
        """Return whether the password was refused at any time after ``from_ns``."""
        return any(
            outage.name == ROTATION and not 0 < outage.to_ns < from_ns for outage in self.outages
        )

    def is_elsewhere(self, job_id: str, from_ns: int, to_ns: int) -> bool:
        """Return whether shards were lost in that time, and none of them holds the job's queue."""
        lost = [loss for loss in self.losses if loss.from_ns <= to_ns and from_ns <= loss.to_ns]
        queue = self.queue_of(job_id)
        return bool(lost) and not any(queue in each.queues for each in lost)

    def queue_of(self, job_id: str) -> str:
        """Return the queue, empty where the producer did not note it, or has not yet."""
        sending = self.sendings.get(job_id)
        return "" if sending is None else sending.queue

    def was_undisturbed(self, from_ns: int, to_ns: int) -> bool:
        """Return whether no outage touched the time from ``from_ns`` to ``to_ns``."""
        return all(
            outage.from_ns > to_ns or (outage.to_ns and outage.to_ns < from_ns)
            for outage in self.outages
        )
