"""Stored records of which not every field can be read.

A record may have been spoilt by hand or by a partial restore, or written by another release. Then
the readable fields still say which record it is, and the damage must reach no other record.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import msgspec

from forge_jobs.clock import EPOCH, from_us
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import HostId
from forge_jobs.model.names import command_line
from forge_jobs.model.processes import Pod, PodGauges, PodState
from forge_jobs.model.queues import QueueSettings, QueueState
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.reports import reporter

logger = reporter(__name__)

S = TypeVar("S")
T = TypeVar("T")
E = TypeVar("E", bound=Enum)

UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, LookupError)
"""Errors of reading a stored value that is not what this release writes there."""

_SHOWN = 40
_MOST_LOGGED = 1000
_MOST_TALLIED = 2**62
_logged: set[tuple[str, str, str]] = set()
"""Records that the log has named, so that each is logged once and not with every beat."""
_MOST_TIMES = 2**31 - 1
"""Counts stay below this, so that one more fits a column of counts."""


class Fields:
    """The fields of one stored record, read one by one.

    An unreadable field is given as a default and named by :attr:`problems`.

    :param stored: name -> value, as the driver gives it
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored
        self._problems: list[str] = []

    @property
    def problems(self) -> str:
        """The unreadable fields, and why. "" when all could be read."""
        return "; ".join(self._problems)

    def read(self, name: str, decode: Callable[[Any], T], otherwise: T) -> T:
        """Return the field as ``decode`` reads it."""
        try:
            stored = self._stored[name]
        except LookupError:
            self._problems.append(f"{name} is missing")
            return otherwise
        return self.value(name, stored, decode, otherwise)

    def value(self, name: str, stored: S, decode: Callable[[S], T], otherwise: T) -> T:
        """Return a part of the record that is no field by itself, as ``decode`` reads it."""
        try:
            return decode(stored)
        except UNREADABLE as error:
            self._problems.append(f"{name} is {shown(stored)} ({' '.join(str(error).split())})")
            return otherwise

    def text(self, name: str) -> str:
        """Return a text."""
        return self.read(name, _text, "")

    def text_or_none(self, name: str) -> str | None:
        """Return a text, or None."""
        return self.read(name, _or_none(_text), None)

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a whole number."""
        return self.read(name, whole, otherwise)

    def at_most(self) -> int:
        """Return the number of a limit by key, zero where unreadable, and where none may run."""
        number = self.number("at_most")
        if number < 1 and not self._problems:
            self._problems.append(f"at_most is {number}, so no job of the limit starts")
        return max(number, 0)

    def number_or_none(self, name: str) -> int | None:
        """Return a whole number, or None."""
        return self.read(name, _or_none(whole), None)

    def instant(self, name: str) -> datetime:
        """Return an instant, the epoch where unreadable."""
        return self.read(name, _instant, EPOCH)

    def instant_or_none(self, name: str) -> datetime | None:
        """Return an instant, or None."""
        return self.read(name, _or_none(_instant), None)

    def duration_or_none(self, name: str) -> timedelta | None:
        """Return a duration, or None."""
        return self.read(name, _or_none(_duration), None)

    def member(self, name: str, otherwise: E) -> E:
        """Return the member of the enum of ``otherwise`` that has the stored value."""
        return self.read(name, type(otherwise), otherwise)

    def member_or_none(self, name: str, members: type[E]) -> E | None:
        """Return a member of an enum, or None."""
        return self.read(name, _or_none(members), None)

    def flag(self, name: str, otherwise: bool = False) -> bool:
        """Return a truth value."""
        return self.read(name, bool, otherwise)


def shown(stored: object) -> str:
    """Return a stored value for people, cut to a few words."""
    text = repr(stored)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def whole(stored: object) -> int:
    """Return a stored whole number.

    :raises TypeError: the value is something else
    """
    if type(stored) is not int:
        raise TypeError("not a whole number")
    return stored


_LONGEST_REST_US = 1_000 * 366 * 86_400 * 1_000_000
"""A time that lies further ahead, which is an edit by hand, leaves room for no date behind."""


def rest_of(until: int, now: int) -> tuple[timedelta, timedelta]:
    """Return how long a pause still lasts, and how long ago one has ended, zero for the other."""
    left = min(max(until - now, -_LONGEST_REST_US), _LONGEST_REST_US)
    return timedelta(microseconds=max(0, left)), timedelta(microseconds=max(0, -left))


def counted(stored: object) -> int:
    """Return a stored number of times, zero where unreadable or out of bounds."""
    return stored if isinstance(stored, int) and 0 <= stored < _MOST_TIMES else 0


def instant_or(stored: object, otherwise: datetime) -> datetime:
    """Return a stored instant, ``otherwise`` where unreadable."""
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
    """Return a stored whole number, ``otherwise`` where unreadable."""
    return stored if type(stored) is int else otherwise


def tally(stored: object) -> int:
    """Return a stored total, zero where unreadable or out of bounds."""
    return stored if type(stored) is int and 0 <= stored < _MOST_TALLIED else 0


def truth(stored: object) -> bool:
    """Return a stored truth value.

    :raises TypeError: the value is something else
    """
    if stored not in (0, 1):
        raise TypeError("not a truth value")
    return bool(stored)


def log_unreadable(sort: str, name: str, problems: str, help: str) -> None:
    """Log once per process that a record is unreadable, and what stands for the record."""
    record = (sort, name, problems)
    if record in _logged:
        return
    if len(_logged) >= _MOST_LOGGED:
        _logged.clear()
    _logged.add(record)
    logger.error("the record of %s %r cannot be read: %s; %s", sort, name, problems, help)


def log_set_aside(queue: str, job_id: str, reason: str) -> None:
    """Log that an unreadable job was to be claimed and is on hold."""
    logger.error(
        "job %s of queue %r cannot be read and is put on hold: %s; look at it with 'forge-jobs "
        "jobs show %s', and requeue it once its record is mended or a release that reads it runs",
        job_id,
        queue,
        reason,
        job_id,
    )


def no_pod(host_id: str) -> Pod:
    """Return a pod in place of one whose description is unreadable."""
    return Pod(host_id=HostId(host_id), label="", queues=(), kinds=(), version="", process_id=0)


def salvaged_pod(found: PodState, problems: str) -> PodState:
    """Return the pod as callers see it. An unreadable pod is logged once.

    :param problems: what cannot be read of the pod, "" for nothing
    """
    if not problems:
        return found
    log_spoilt_pod(found.pod.host_id, problems)
    return msgspec.structs.replace(found, unreadable=problems)


def log_spoilt_pod(host_id: str, problems: str) -> None:
    """Log once what cannot be read of a pod."""
    help = "the pod writes it anew when it registers, at its next start at the latest"
    log_unreadable("pod", host_id, problems, help)


def letters_to(stored: Any) -> str:
    """Return the stored name of a queue for dead letters, "" for none."""
    return QueueSettings(dead_letter=_text(stored)).dead_letter


def objective_in(stored: Any) -> str:
    """Return the stored text of an objective, "" for none."""
    return QueueSettings(objective=_text(stored)).objective


def declared_in(stored: Any) -> QueueSettings | None:
    """Return the stored settings of code, None where there are none, or none that can be read."""
    try:
        return msgspec.json.decode(_text(stored), type=QueueSettings)
    except UNREADABLE:
        return None


def salvaged_queue(found: QueueState, problems: str) -> QueueState:
    """Return the state as callers see it. An unreadable queue is logged once.

    :param problems: what cannot be read of the queue, "" for nothing
    """
    if not problems:
        return found
    help = f"defaults stand for it; set it anew with {command_line('queues set', found.name)}"
    log_unreadable("queue", found.name, problems, help)
    return msgspec.structs.replace(found, unreadable=problems)


def no_spec(name: str) -> ScheduleSpec:
    """Return a specification in place of one that is unreadable."""
    return ScheduleSpec(name=name, queue="", kind="", expression="")


def salvaged_schedule(found: Schedule, problems: str) -> Schedule:
    """Return the schedule as callers see it. An unreadable schedule is logged once.

    :param problems: what cannot be read of the schedule, "" for nothing
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
    """Return the event as callers see it. The detail of an unreadable event names the problems.

    :param problems: what cannot be read of the event, "" for nothing
    """
    if not problems:
        return found
    detail = f"{found.detail} ({problems})" if found.detail else problems
    return msgspec.structs.replace(found, kind=EventKind.UNREADABLE, detail=detail)


def counts_of(queue: str, stored: Any) -> dict[int, int]:
    """Return a stored histogram, an empty one where unreadable."""
    return _read("latencies of queue", queue, _counts, stored) or {}


def names_of(queue: str, stored: Any) -> dict[str, int]:
    """Return stored counters by name, none where unreadable."""
    return _read("counters of queue", queue, _names, stored) or {}


def gauges_of(host_id: str, stored: Any) -> PodGauges | None:
    """Return stored measurements of a pod, None where unreadable."""
    return _read("gauges of pod", host_id, _gauges, stored)


def _read(sort: str, name: str, decode: Callable[[Any], T], stored: Any) -> T | None:
    try:
        # At once, because one page may read thousands.
        return decode(stored)
    except UNREADABLE:
        read = Fields({"value": stored})
        read.read("value", decode, None)
        log_unreadable(sort, name, read.problems, "this minute is left out")
        return None
