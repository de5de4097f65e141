"""A problem, its code and severity, and the words that all rules share."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from urllib.parse import quote

from msgspec import Struct

from forge_jobs.model.names import path_part
from forge_jobs.policy.judgement.problems.snapshot import Snapshot


class Code(StrEnum):
    """The code of a problem. Stable: alerts and run-books name it."""

    UNSERVED_QUEUE = "unserved_queue"
    UNKNOWN_KIND = "unknown_kind"
    BACKLOG_GROWING = "backlog_growing"
    OBJECTIVE_MISSED = "objective_missed"
    ERROR_BURST = "error_burst"
    CRASH_LOOP = "crash_loop"
    LONG_RUNNER = "long_runner"
    CANCEL_IGNORED = "cancel_ignored"
    POD_SILENT = "pod_silent"
    POD_FLAPPING = "pod_flapping"
    LOOP_BLOCKED = "loop_blocked"
    NO_LEADER = "no_leader"
    SLOTS_NOT_GRANTED = "slots_not_granted"
    DRAIN_STUCK = "drain_stuck"
    PAUSED_WITH_WORK = "paused_with_work"
    COOLING_WITH_WORK = "cooling_with_work"
    LIMIT_STARVING = "limit_starving"
    KEY_STARVING = "key_starving"
    STRUCK_WITH_WORK = "struck_with_work"
    CHILDREN_HELD = "children_held"
    SCHEDULE_BROKEN = "schedule_broken"
    SCHEDULE_LATE = "schedule_late"
    ROLL_UP_BEHIND = "roll_up_behind"
    CLOCK_SKEW = "clock_skew"
    POLLING_ONLY = "polling_only"
    STORE_SLOW = "store_slow"
    STORE_FULL = "store_full"
    POOL_EXHAUSTED = "pool_exhausted"
    OLD_TRANSACTION = "old_transaction"
    OUTBOX_WAITING = "outbox_waiting"
    OUTBOX_SET_ASIDE = "outbox_set_aside"


class Severity(StrEnum):
    """How much a problem matters."""

    CRITICAL = "critical"
    """Work stands still or is lost to people now."""
    WARNING = "warning"
    """Work suffers, or will."""
    NOTICE = "notice"
    """May be meant so."""


class Finding(Struct, frozen=True, kw_only=True):
    """The finding of a rule about one thing.

    :param about: the name of the queue, pod, schedule, limit or job. "" for the whole store
    :param since: when that began
    :param evidence: what is seen, in a sentence with its numbers
    :param why: the cause as far as it is known, in a sentence
    :param action: what is safe to do, in a sentence
    :param command: the command that does it, "" where none can
    :param page: the page that tells more
    :param queue: the queue that suffers, "" for none or all
    :param jobs: how many jobs suffer, to find the worst
    """

    about: str
    since: datetime
    evidence: str
    why: str
    action: str
    command: str = ""
    page: str
    queue: str = ""
    jobs: int = 0


Look = Callable[[Snapshot], Iterable[Finding]]


class Rule(Struct, frozen=True, kw_only=True):
    """A rule: what it looks for, and how long that must have lasted.

    :param after: the problem holds from ``since`` + ``after`` on. Short enough to be in time, long
        enough that a rolling deploy or a full minute of work is no problem
    :param look: finds what has begun, however short ago
    :param explained_by: codes that explain this one: of the same queue, or of the whole store
    """

    code: Code
    severity: Severity
    after: timedelta
    look: Look
    explained_by: frozenset[Code] = frozenset()


class Problem(Finding, frozen=True, kw_only=True):
    """Something that is wrong, for the person on call."""

    code: Code
    severity: Severity


MOST_OF_EACH = 5
"""So many problems of one code are shown at once. A store may have thousands of queues."""


def few_of_each(found: Iterable[Problem]) -> tuple[list[Problem], dict[Code, int]]:
    """Return the first problems of each code, in their order, and how many more each code has."""
    few, more = list[Problem](), dict[Code, int]()
    seen = Counter[Code]()
    for problem in found:
        seen[problem.code] += 1
        if seen[problem.code] <= MOST_OF_EACH:
            few.append(problem)
        else:
            more[problem.code] = seen[problem.code] - MOST_OF_EACH
    return few, more


def page_of(section: str, name: str = "") -> str:
    """The path of a page, with the name of one thing."""
    return f"/{section}/{path_part(name)}" if name else f"/{section}"


def jobs_page(where: str) -> str:
    """The path of the list of jobs with a filter."""
    return f"/jobs?q={quote(where, safe='')}"


def number(count: int, noun: str) -> str:
    """A number of things, with commas between thousands."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def waits(count: int, noun: str) -> str:
    """A number of things that wait: ``1 job waits``, ``4,120 jobs wait``."""
    return f"{number(count, noun)} {'waits' if count == 1 else 'wait'}"


def clock(at: datetime, now: datetime) -> str:
    """The time of day for people, with the date when that is another day than today."""
    at, today = at.astimezone(UTC), now.astimezone(UTC).date()
    return at.strftime("%H:%M:%S UTC" if at.date() == today else "%Y-%m-%d %H:%M:%S UTC")


_UNITS = (
    (timedelta(days=2), timedelta(days=1), "days"),
    (timedelta(hours=2), timedelta(hours=1), "h"),
    (timedelta(minutes=2), timedelta(minutes=1), "min"),
)
"""From how long on a unit is used, its length and its name."""


def for_long(length: timedelta) -> str:
    """A duration for people, in one unit, rounded down."""
    for least, unit, name in _UNITS:
        if length >= least:
            return f"{length // unit} {name}"
    return f"{max(length, timedelta(0)).total_seconds():.0f} s"


def short(length: timedelta) -> str:
    """A duration that may be below a second."""
    seconds = length.total_seconds()
    return f"{seconds:.2g} s" if seconds < 10 else for_long(length)
