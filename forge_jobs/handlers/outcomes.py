"""Outcomes: exceptions that a handler raises, or returns, to say how the run ended.

Any other exception is a failure, any other return value a success. The text of a failure
is stored with the job, so it should hold no secrets.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.durations import MAX_DURATION, check_duration
from forge_jobs.model.names import check_name


class Outcome(Exception):
    """Base of those below."""


def errors_in(error: BaseException) -> list[BaseException]:
    """Return the errors of a group in their order, also of groups inside. Of another error itself.

    Task groups raise groups, also of one error.
    """
    found, left = list[BaseException](), [error]
    while left:
        each = left.pop()
        if isinstance(each, BaseExceptionGroup):
            left += reversed(each.exceptions)
        else:
            found.append(each)
    return found


def said_by(error: BaseException) -> BaseException:
    """Return the outcome that ``error`` means: itself, or the first of a group of one class.

    Outcomes of two classes contradict each other, and an error beside an outcome is a failure. Both
    give ``error`` back.
    """
    errors = errors_in(error)
    first = errors[0]
    alike = isinstance(first, Outcome) and all(type(each) is type(first) for each in errors)
    return first if alike else error


def remaining(field: str, value: object) -> timedelta:
    """``value`` as a timedelta, zero when that moment has passed.

    :raises InvalidInput: see ``check_duration``
    """
    is_past = isinstance(value, int | float) and -MAX_DURATION.total_seconds() <= value < 0
    if is_past or (isinstance(value, timedelta) and value < timedelta(0)):
        return timedelta(0)
    return check_duration(field, value)


class Throttled(Outcome):
    """The upstream asked for less: the attempt is handed back and the whole queue cools down.

    :param retry_after: how long the upstream asked to wait, a timedelta or seconds. The queue's
        cool-down policy decides when left out. One that has passed already, and so is negative,
        counts as zero: the queue cools down for the shortest time there is
    """

    def __init__(self, retry_after: timedelta | float | None = None) -> None:
        super().__init__(retry_after)
        self.retry_after = None if retry_after is None else remaining("retry_after", retry_after)

    def __str__(self) -> str:
        return "throttled" if self.retry_after is None else f"throttled for {self.retry_after}"


class Snoozed(Outcome):
    """Not now: the attempt is handed back and this job alone is due again after ``delay``.

    :param delay: a timedelta or seconds. From the twentieth snooze of a job on it grows to a second
        at least
    """

    def __init__(self, delay: timedelta | float) -> None:
        super().__init__(delay)
        self.delay = check_duration("delay", delay)

    def __str__(self) -> str:
        return f"snoozed for {self.delay}"


class Again(Outcome):
    """The run is a success, and the job begins anew ``after`` that much time.

    The job stays the same job with the same id, unique key and children, and a program that waits
    for the result waits on. The next occurrence has all attempts, and no checkpoint of this one.
    Return anything else to end the job.

    :param after: a timedelta or seconds
    :param payload: the arguments of the next occurrence by name, as for ``handler.request``. Those
        that are left out have their defaults. None: the arguments of this one
    """

    def __init__(
        self, after: timedelta | float = 0, payload: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(after, payload)
        self.after = check_duration("after", after)
        self.payload = None if payload is None else check_arguments("payload", payload)

    def __str__(self) -> str:
        return f"again after {self.after}"


def check_arguments(field: str, value: object) -> Mapping[str, Any]:
    """``value`` as arguments by name.

    :raises InvalidInput: no mapping, or a name that is no text
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        fix = f'give the arguments by name, as in {field}={{"page": 2}}'
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    return value


class RateLimited(Outcome):
    """A limit of this cluster has no token left: this job alone waits for a turn.

    The attempt is handed back and counts toward nothing: no attempt, no snooze, no cool-down. The
    job is due again when the limit can have a token for it. Jobs that wait for one limit get their
    turns in the order in which they asked.

    :param scope: the rate limit, as in ``ctx.rate_limit.acquire(scope)``
    :param count: how many tokens the job needs at once
    """

    def __init__(self, scope: str, count: int = 1) -> None:
        super().__init__(scope, count)
        self.scope = check_name("scope", scope)
        self.count = check_count(count)

    def __str__(self) -> str:
        return f"waits for the rate limit {self.scope!r}"


def check_count(value: object) -> int:
    """``value`` as a number of tokens.

    :raises InvalidInput: the number is not whole, or below 1
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput("count", f"is {value!r:.80}", "give a whole number, at least 1")
    return value


class Failed(Outcome):
    """This attempt failed. The job is retried while attempts are left.

    :param retry_in: a timedelta or seconds, instead of what the retry policy would choose
    """

    def __init__(self, message: str, retry_in: timedelta | float | None = None) -> None:
        super().__init__(message, retry_in)
        self.message = message
        self.retry_in = None if retry_in is None else check_duration("retry_in", retry_in)

    def __str__(self) -> str:
        return self.message


class Dead(Outcome):
    """No further attempt can help: the job is dead at once, whatever attempts are left."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message
