"""Stored records of which not every field can be read.

A record may have been spoilt by hand or by a partial restore, or written by another release. Then
its other fields still say which record it is, and it must harm no record but itself.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import msgspec

from forge_jobs.clock import EPOCH, from_us
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod, PodGauges, PodState
from forge_jobs.model.queues import QueueState
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.reports import reporter

logger = reporter(__name__)

S = TypeVar("S")
T = TypeVar("T")
E = TypeVar("E", bound=Enum)

UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, LookupError)
"""What reading a stored value raises when it is not what this release writes there."""

_SHOWN = 40
_MOST_LOGGED = 1000
_MOST_TALLIED = 2**62
_logged: set[tuple[str, str, str]] = set()
"""Records that the log has named, so that a beat a second does not repeat it."""
_MOST_TIMES = 2**31 - 1
"""One more must fit the columns of counts."""


class Fields:
    """The fields of one stored record, read one by one.

    A field that cannot be read is given as a default, and named by :attr:`problems`.

    :param stored: name -> value, as the driver gives it
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored
        self._problems: list[str] = []

    @property
    def problems(self) -> str:
        """The fields that could not be read, and why; "" when all could."""
        return "; ".join(self._problems)

    def read(self, name: str, decode: Callable[[Any], T], otherwise: T) -> T:
        """What ``decode`` makes of the field."""
        try:
            stored = self._stored[name]
        except LookupError:
            self._problems.append(f"{name} is missing")
            return otherwise
        return self.value(name, stored, decode, otherwise)

    def value(self, name: str, stored: S, decode: Callable[[S], T], otherwise: T) -> T:
        """What ``decode`` makes of a part of the record that is no field by itself."""
        try:
            return decode(stored)
        except UNREADABLE as error:
            self._problems.append(f"{name} is {shown(stored)} ({' '.join(str(error).split())})")
            return otherwise

    def text(self, name: str, otherwise: str = "") -> str:
        """A text."""
        return self.read(name, _text, otherwise)

    def text_or_none(self, name: str) -> str | None:
        """A text, or None."""
        return self.read(name, _or_none(_text), None)

    def number(self, name: str, otherwise: int = 0) -> int:
        """A whole number."""
        return self.read(name, whole, otherwise)

    def number_or_none(self, name: str) -> int | None:
        """A whole number, or None."""
        return self.read(name, _or_none(whole), None)

    def instant(self, name: str) -> datetime:
        """An instant; the epoch where it cannot be read."""
        return self.read(name, _instant, EPOCH)

    def instant_or_none(self, name: str) -> datetime | None:
        """An instant, or None."""
        return self.read(name, _or_none(_instant), None)

    def duration_or_none(self, name: str) -> timedelta | None:
        """A duration, or None."""
        return self.read(name, _or_none(_duration), None)

    def member(self, name: str, otherwise: E) -> E:
        """A member of the enum of ``otherwise``, by its value."""
        return self.read(name, type(otherwise), otherwise)

    def member_or_none(self, name: str, members: type[E]) -> E | None:
        """A member of an enum, or None."""
        return self.read(name, _or_none(members), None)

    def flag(self, name: str, otherwise: bool = False) -> bool:
        """A truth value."""
        return self.read(name, bool, otherwise)


def shown(stored: object) -> str:
    """A stored value for people, cut to a few words."""
    text = repr(stored)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def whole(stored: object) -> int:
    """A stored whole number.

    :raises TypeError: it is something else
    """
    if type(stored) is not int:
        raise TypeError("not a whole number")
    return stored


def counted(stored: object) -> int:
    """A stored number of times; zero where none can be read, or one that is out of bounds."""
    return stored if isinstance(stored, int) and 0 <= stored < _MOST_TIMES else 0


def instant_or(stored: object, otherwise: datetime) -> datetime:
    """A stored instant, ``otherwise`` where none can be read."""
    try:
        return _instant(stored)
    except UNREADABLE:
        return otherwise


def _text(stored: object) -> str:
    if not isinstance(stored, str):
        raise TypeError("not a text")
    return stored


def _instant(stored: object) -> datetime:
    return from_us(whole(stored))


def _duration(stored: object) -> timedelta:
    return timedelta(microseconds=whole(stored))


def _or_none(decode: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda stored: None if stored is None else decode(stored)


def number_or(stored: object, otherwise: int) -> int:
    """A stored whole number, ``otherwise`` where none can be read."""
    return stored if type(stored) is int else otherwise


def tally(stored: object) -> int:
    """A stored total; zero where none can be read, or one that is out of bounds."""
    return stored if type(stored) is int and 0 <= stored < _MOST_TALLIED else 0


def truth(stored: object) -> bool:
    """A stored truth value.

    :raises TypeError: it is something else
    """
    if stored not in (0, 1):
        raise TypeError("not a truth value")
    return bool(stored)


def log_unreadable(sort: str, name: str, problems: str, help: str) -> None:
    """Say once in this process that a record cannot be read, and what stands for it."""
    told = (sort, name, problems)
    if told in _logged:
        return
    if len(_logged) >= _MOST_LOGGED:
        _logged.clear()
    _logged.add(told)
    logger.error("the record of %s %r cannot be read: %s; %s", sort, name, problems, help)


def log_set_aside(queue: str, job_id: str, reason: str) -> None:
    """Say that a job was to be claimed, cannot be read and is on hold."""
    logger.error(
        "job %s of queue %r cannot be read and is put on hold: %s; look at it with 'forge-jobs "
        "jobs show %s', and requeue it once its record is mended or a release that reads it runs",
        job_id,
        queue,
        reason,
        job_id,
    )


def no_pod(host_id: str) -> Pod:
    """What stands for what a pod said of itself, where that cannot be read."""
    return Pod(host_id=HostId(host_id), label="", queues=(), kinds=(), version="", process_id=0)


def salvaged_pod(found: PodState, problems: str) -> PodState:
    """The pod as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    log_spoilt_pod(found.pod.host_id, problems)
    return msgspec.structs.replace(found, unreadable=problems)


def log_spoilt_pod(host_id: str, problems: str) -> None:
    """Say once what cannot be read of a pod."""
    help = "the pod writes it anew when it registers, at its next start at the latest"
    log_unreadable("pod", host_id, problems, help)


def salvaged_queue(found: QueueState, problems: str) -> QueueState:
    """The state as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    help = f"defaults stand for it; set it anew with 'forge-jobs queues set {found.name}'"
    log_unreadable("queue", found.name, problems, help)
    return msgspec.structs.replace(found, unreadable=problems)


def no_spec(name: str) -> ScheduleSpec:
    """What stands for a specification that cannot be read."""
    return ScheduleSpec(name=name, queue="", kind="", expression="")


def salvaged_schedule(found: Schedule, problems: str) -> Schedule:
    """The schedule as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    help = "it does not fire; set it anew, or delete it with 'forge-jobs cron delete'"
    log_unreadable("schedule", found.spec.name, problems, help)
    return msgspec.structs.replace(found, unreadable=problems)


_counts = msgspec.json.Decoder(dict[int, int]).decode
_names = msgspec.json.Decoder(dict[str, int]).decode
_gauges = msgspec.json.Decoder(PodGauges).decode


def salvaged_event(found: TimelineEvent, problems: str) -> TimelineEvent:
    """The event as callers see it: one that cannot be read says so in its detail.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    detail = f"{found.detail} ({problems})" if found.detail else problems
    return msgspec.structs.replace(found, kind=EventKind.UNREADABLE, detail=detail)


def counts_of(queue: str, stored: Any) -> Mapping[int, int]:
    """A stored histogram, an empty one where it cannot be read."""
    nothing: Mapping[int, int] = {}
    return _read("latencies of queue", queue, _counts, stored) or nothing


def names_of(queue: str, stored: Any) -> Mapping[str, int]:
    """Stored counters by name, none where they cannot be read."""
    nothing: Mapping[str, int] = {}
    return _read("counters of queue", queue, _names, stored) or nothing


def gauges_of(host_id: str, stored: Any) -> PodGauges | None:
    """Stored measurements of a pod, None where they cannot be read."""
    return _read("gauges of pod", host_id, _gauges, stored)


def _read(sort: str, name: str, decode: Callable[[Any], T], stored: Any) -> T | None:
    read = Fields({"value": stored})
    found = read.read("value", decode, None)
    if read.problems:
        log_unreadable(sort, name, read.problems, "this minute is left out")
    return found
