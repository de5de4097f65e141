"""Groups of failures: what failed alike, how often, since when, and some of the jobs.

A group is one kind, one type of error and one message without its changing parts, within a queue.
The text of a group's id is made by :func:`~forge_jobs.model.failures.fingerprints.error_group`.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import JobId
from forge_jobs.model.metrics import MINUTE

MOST_GROUPS = 1_000
"""Groups of a queue at most. What fails in further ways is counted in the group ``OTHER``."""

OTHER = "other"
"""The id of the group for all that has no group of its own. Kind, type and message are empty."""

MOST_SAMPLES = 10
"""Jobs that a group names: the newest."""

MOST_VERSIONS = 20
"""Versions of pods that a group names: the newest."""

MOST_STEPS = 2_000
"""Steps that one read has at most."""


class FailureSample(Struct, frozen=True, kw_only=True):
    """Failures of one group that one pod has met in one minute.

    :param group: the id
    :param message: without its changing parts
    :param minute: start of the minute, of the store's clock
    :param retried: attempts after which the job waits again
    :param dead: attempts after which the job is dead
    :param jobs: some of the jobs, newest last
    :param version: of the pod, "" for none
    """

    queue: str
    group: str
    kind: str
    type: str
    message: str
    minute: datetime
    first_at: datetime
    last_at: datetime
    retried: int = 0
    dead: int = 0
    jobs: tuple[JobId, ...] = ()
    version: str = ""


class FailureCount(Struct, frozen=True, kw_only=True):
    """The failures of a group in one step of the asked range.

    :param at: start of the step
    """

    at: datetime
    retried: int
    dead: int


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """A group of failures in one queue, as of the asked range of time.

    Counts are not exact: pods buffer them, and a killed pod loses what it has buffered.

    :param id: the same for the same failure in every queue and on every store
    :param type: of the error, "" for the group ``OTHER``
    :param message: without its changing parts, which are "…"
    :param retried: failures in the range after which the job waited again
    :param dead: failures in the range after which the job was dead
    :param first_at: of the first failure that is known, also before the range
    :param last_at: of the last failure that is known, also after the range
    :param versions: of the pods that met such failures, oldest first. ``MOST_VERSIONS`` at most
    :param jobs: the newest that failed so, newest first. ``MOST_SAMPLES`` at most. Some may be gone
    :param counts: the steps that counted anything, oldest first
    """

    id: str
    queue: str
    kind: str
    type: str
    message: str
    retried: int
    dead: int
    first_at: datetime
    last_at: datetime
    versions: tuple[str, ...] = ()
    jobs: tuple[JobId, ...] = ()
    counts: tuple[FailureCount, ...] = ()


class ErrorGroups(Struct, frozen=True):
    """A page of groups, the one that failed last first.

    A page may be short, or even empty, before the last one: go on while there is a ``cursor``.

    :param cursor: pass it to get the next page. None on the last page
    :param silent: queues that did not answer, so that none of their groups are on the page
    """

    groups: tuple[ErrorGroup, ...]
    cursor: str | None
    silent: tuple[str, ...] = ()


def check_steps(since: datetime, until: datetime, step: timedelta) -> None:
    """Check the range of a read and the length of its steps.

    :raises InvalidInput: an instant has no time zone, or there are too many steps
    """
    for name, at in (("since", since), ("until", until)):
        if not isinstance(at, datetime) or at.utcoffset() is None:
            fix = "give an aware datetime, such as datetime(2030, 1, 31, tzinfo=UTC)"
            raise InvalidInput(name, f"is {at!r}", fix)
    if not isinstance(step, timedelta) or step < MINUTE or step % MINUTE:
        raise InvalidInput("step", f"is {step!r}", "give whole minutes, at least one")
    if until - since > MOST_STEPS * step:
        least = -(-(until - since) // MOST_STEPS // MINUTE) * MINUTE
        problem = f"is {step}, and the range has more than {MOST_STEPS} of them"
        raise InvalidInput("step", problem, f"give {least + MINUTE} or more, or a shorter range")
