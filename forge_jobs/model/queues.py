"""Queues, their settings, and rate limits."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, structs

from forge_jobs.durations import check_span
from forge_jobs.errors import InvalidInput
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.objectives import Objective, parse_objective
from forge_jobs.model.retention import FOR_EVER
from forge_jobs.model.retries import RETRY_FIX, Retry

MAX_WORKERS_LIMIT = 100_000
MOST_KEPT = 10**12
_CENTURY = timedelta(days=36_500)
_MODES = ("flat", "exponential")
_RECORD_FIX = {"cooldown": "give CooldownPolicy(...)", "retention": "give Retention(...)"}


class CooldownPolicy(Struct, frozen=True, kw_only=True):
    """How long a queue pauses after a handler reported throttling.

    ``flat``: always ``base``. ``exponential``: ``base`` x 2^(level-1) up to ``cap``. The level
    falls back to zero after ``quiet`` without a throttle, counted from the end of the pause.
    A ``retry_after`` of the upstream replaces the computed length, within [1 s, ``cap``].

    :param mode: ``flat`` or ``exponential``
    :param base: the first pause, a timedelta as all durations here, of at most a century
    :raises InvalidInput: a value has the wrong type or is negative, or ``cap`` is below ``base``
    """

    mode: Literal["flat", "exponential"] = "flat"
    base: timedelta = timedelta(seconds=60)
    cap: timedelta = timedelta(minutes=30)
    quiet: timedelta = timedelta(seconds=120)

    def __post_init__(self) -> None:
        for name in ("base", "cap", "quiet"):
            structs.force_setattr(self, name, check_span(name, getattr(self, name), _CENTURY))
        if self.mode not in _MODES:
            raise InvalidInput("mode", f"is {self.mode!r:.40}", f"give {' or '.join(_MODES)}")
        if self.cap < self.base:
            raise InvalidInput("cap", f"is {self.cap}, below base", f"give at least {self.base}")


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished jobs stay, by age since they ended, and how many at most.

    Zero age keeps nothing: the payload goes at once, the row a minute later. ``timedelta.max``
    keeps jobs for ever.

    :param done: the age from which on a job that succeeded is removed, a timedelta
    :param dead: the same of a job that gave up
    :param cancelled: the same of a cancelled job
    :param max_done: how many of them stay at most, the newest. None: no bound by count. The same
        are ``max_dead`` and ``max_cancelled``
    :raises InvalidInput: an age is no timedelta or negative, or a count is no whole number from 0
        to 10^12
    """

    done: timedelta = timedelta(days=7)
    dead: timedelta = timedelta(days=30)
    cancelled: timedelta = timedelta(days=30)
    max_done: int | None = None
    max_dead: int | None = None
    max_cancelled: int | None = None

    def __post_init__(self) -> None:
        for name in ("done", "dead", "cancelled"):
            structs.force_setattr(self, name, check_span(name, getattr(self, name), FOR_EVER))
        for name in ("max_done", "max_dead", "max_cancelled"):
            bound = getattr(self, name)
            if bound is not None and (type(bound) is not int or not 0 <= bound <= MOST_KEPT):
                raise InvalidInput(name, f"is {bound!r:.40}", f"give 0 to {MOST_KEPT}, or None")


class QueueSettings(Struct, frozen=True, kw_only=True):
    """The settings of one queue.

    ``QueueSettings(max_workers=4, retention=Retention(done=timedelta(hours=1)))``

    :param max_workers: running handlers in the whole cluster, 0 to 100,000
    :param cooldown: how long the queue pauses after ``Throttled``
    :param retention: how long ended jobs stay
    :param retry: for jobs whose handler has no policy. None: exponential
    :param dead_letter: the queue that gets a letter of each job that dies here. "" for none
    :param objective: how many jobs should start in time, as ``95% within 30s``. "" for none. Other
        spellings are stored as this one
    """

    max_workers: int = 1
    cooldown: CooldownPolicy = CooldownPolicy()
    retention: Retention = Retention()
    retry: Retry | None = None
    dead_letter: str = ""
    objective: str = ""

    def __post_init__(self) -> None:
        workers = self.max_workers
        if type(workers) is not int or not 0 <= workers <= MAX_WORKERS_LIMIT:
            raise InvalidInput("max_workers", f"is {workers!r}", f"give 0 to {MAX_WORKERS_LIMIT}")
        _check_records(self, "retry")
        if self.dead_letter != "":
            check_queue("dead_letter", self.dead_letter)
        _settle_objective(self)

    @property
    def aim(self) -> Objective | None:
        """The objective as a value. None without one."""
        return parse_objective(self.objective) if self.objective else None


class QueueState(Struct, frozen=True, kw_only=True):
    """The current state of a queue: settings in force, and pauses.

    :param overridden: names of the settings an operator has set. Code does not change them
    :param paused_since: when the queue was paused. None while it is not
    :param cooldown_remaining: zero without a cool-down
    :param cooldown_level: throttles in a row, see :class:`CooldownPolicy`
    :param cooldown_ended_for: how long ago the last pause ended. Zero while it lasts, None
        when there was none
    :param unreadable: which stored fields cannot be read, and why. Here they are as in a new
        queue, but what cannot be read of a pause stands for a pause
    """

    name: str
    settings: QueueSettings
    overridden: frozenset[str]
    paused: bool
    cooldown_remaining: timedelta
    cooldown_level: int
    cooldown_ended_for: timedelta | None
    paused_since: datetime | None = None
    unreadable: str = ""


class QueueChange(Struct, frozen=True, kw_only=True):
    """An operator's edit: only what is not None is changed, and stays over later deploys.

    :param dead_letter: "" for no letters from now on
    :param objective: "" for none from now on
    :param back: names of settings that are the code's again: as code declared them last, the
        default where no code did. Later deploys change these
    :raises InvalidInput: a name is no setting, or has a new value too
    """

    max_workers: int | None = None
    cooldown: CooldownPolicy | None = None
    retention: Retention | None = None
    retry: Retry | None = None
    dead_letter: str | None = None
    objective: str | None = None
    back: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in sorted(self.back):
            if name not in QueueSettings.__struct_fields__:
                fix = f"give names among {', '.join(QueueSettings.__struct_fields__)}"
                raise InvalidInput("back", f"names {name[:40]!r}, which is no setting", fix)
            if getattr(self, name) is not None:
                raise InvalidInput("back", f"names {name}, which has a new value too", "give one")
        _check_records(self, "cooldown", "retention", "retry")
        if self.dead_letter:
            check_queue("dead_letter", self.dead_letter)
        if self.objective is not None:
            _settle_objective(self)

    @property
    def wished(self) -> dict[str, Any]:
        """The new values, by setting."""
        fields = structs.asdict(self)
        del fields["back"]
        return {name: value for name, value in fields.items() if value is not None}


def _check_records(settings: QueueSettings | QueueChange, *may_be_none: str) -> None:
    records: dict[str, Any] = {"cooldown": CooldownPolicy, "retention": Retention, "retry": Retry}
    for name, form in records.items():
        value = getattr(settings, name)
        if not isinstance(value, form) and not (value is None and name in may_be_none):
            raise InvalidInput(name, f"is {value!r:.80}", _RECORD_FIX.get(name, RETRY_FIX))


def _settle_objective(settings: QueueSettings | QueueChange) -> None:
    """Spell the objective in the one way, so that equal objectives are equal texts.

    :raises InvalidInput: the text is no objective
    """
    if settings.objective != "":
        spelled = str(parse_objective(settings.objective))  # type: ignore[arg-type]
        structs.force_setattr(settings, "objective", spelled)


class RateLimit(Struct, frozen=True):
    """A token bucket: holds ``capacity`` tokens, refills that many per ``per``.

    Starts full. In any window of length w at most ``capacity + capacity * w / per`` tokens
    are given.

    :param per: seconds, or a timedelta
    """

    capacity: int
    per: float | timedelta = 1.0

    def __post_init__(self) -> None:
        if type(self.capacity) is not int or self.capacity < 1:
            raise InvalidInput("capacity", f"is {self.capacity!r:.40}", "give at least 1")
        if isinstance(self.per, bool) or not isinstance(self.per, timedelta | int | float):
            raise InvalidInput("per", f"is {self.per!r:.40}", "give seconds or a timedelta")
        try:
            _ = self.period
        except (ValueError, OverflowError):
            fix = "give seconds or a timedelta, above zero and at most a hundred years"
            raise InvalidInput("per", f"is {self.per!r:.40}", fix) from None
        if not self.period > timedelta(0):
            is_tiny = not isinstance(self.per, timedelta) and self.per > 0
            fix = "a microsecond, 1e-06, or more" if is_tiny else "a duration above zero"
            raise InvalidInput("per", f"is {self.per}", f"give {fix}")

    @property
    def period(self) -> timedelta:
        """The time in which an empty bucket fills up."""
        return self.per if isinstance(self.per, timedelta) else timedelta(seconds=self.per)


class TokenGrant(Struct, frozen=True):
    """The answer to a request for tokens.

    :param granted: all of the tokens were taken or reserved. Else none was
    :param retry_in: when not granted: how long until that many could be there. Granted: how long
        until the reserved tokens are there, zero when they were
    """

    granted: bool
    retry_in: timedelta


class RateAsk(Struct, frozen=True):
    """A request for one token of a rate limit, for a job that is about to run.

    :param scope: the rate limit
    :param key: of the bucket. Each key of a rate limit has a bucket of its own, of the size of the
        rate limit. "" for the bucket of the rate limit itself
    :param waits: the job comes again at its turn. False: without a token the job ends, and takes no
        place among the turns
    :param had_turn: the job has waited for its turn, and goes before those that have not
    :param ahead: the job begins at some time within this time after the call. Zero: at once
    """

    scope: str
    key: str = ""
    waits: bool = True
    had_turn: bool = False
    ahead: timedelta = timedelta(0)


class RateLimitState(Struct, frozen=True, kw_only=True):
    """The current state of a named bucket.

    :param available: whole tokens that could be taken now
    :param unreadable: which stored fields cannot be read, and why. "" when all can
    :param next_in: until one more token could be taken. None: the bucket is full, or unreadable
    """

    scope: str
    limit: RateLimit
    available: int
    overridden: bool
    unreadable: str = ""
    next_in: timedelta | None = None


def check_limits(limits: Mapping[str, int], shares: Mapping[str, int] | None = None) -> None:
    """Refuse names and numbers that no limit can have.

    :param shares: of limits that have one
    :raises InvalidInput: names the field
    """
    numbers = [("limit", *each) for each in limits.items()]
    numbers += [("share", *each) for each in (shares or {}).items()]
    for field, name, number in numbers:
        check_name("limit", name)
        if name not in limits:
            raise InvalidInput("share", f"names {name!r}, which is no limit", "give its number too")
        fits = type(number) is int
        if not fits or not 1 <= number <= MAX_WORKERS_LIMIT:
            raise InvalidInput(field, f"is {number!r}", f"give 1 to {MAX_WORKERS_LIMIT}")


class LimitState(Struct, frozen=True, kw_only=True):
    """A stored limit of a queue: how many jobs of each of its keys may be in progress.

    :param at_most: jobs of one key, from 1 on. 0 where the stored number is no such number
    :param share: the keys take turns, and have slots in proportion to this weight. None: jobs of
        all keys start in the order of the queue
    :param overridden: an operator has set the numbers, so that code does not change them
    :param unreadable: which stored fields cannot be read, and why. "" when all can. A limit whose
        number cannot be read holds nothing back, and one below 1, which is named too, all its jobs
    """

    queue: str
    name: str
    at_most: int
    share: int | None = None
    overridden: bool
    unreadable: str = ""


MOST_KEY_JOBS = 1_000
"""So many waiting jobs of a key of a limit are counted, and so many ids of jobs answered."""


class LimitKey(Struct, frozen=True, kw_only=True):
    """A key of a limit at which jobs wait.

    :param running: jobs in progress, those that a pod holds ahead among them
    :param waiting: jobs on hold for the limit, counted up to 1,000
    """

    key: str
    running: int
    waiting: int


class LimitHolders(Struct, frozen=True, kw_only=True):
    """The jobs of one key of a limit. Ids of jobs, as many of each as were asked for.

    :param running: jobs in progress, the longest claimed first
    :param waiting: jobs on hold for the limit, in the order in which they become ready
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class QueueCounts(Struct, frozen=True, kw_only=True):
    """How many jobs a queue holds, by status, and how long the oldest due one has waited.

    :param by_status: every status, also where the count is zero
    :param due: pending or failed jobs that could be claimed now
    :param held: waiting jobs kept out of the ready index, those not counted that only wait until
        another job of their limit and key has ended
    :param running: jobs in progress whose start is known
    :param oldest_due_for: None when nothing is due
    :param more: statuses of which the queue has more jobs than ``by_status`` says, because they
        were counted up to a bound
    """

    by_status: Mapping[str, int]
    due: int
    held: int
    running: int
    oldest_due_for: timedelta | None
    more: tuple[str, ...] = ()


ENDED_COUNTED = 1_000
"""Up to how many ended jobs of a status and queue surfaces count."""


MOST_AHEAD = 50_000


class LinePlace(Struct, frozen=True, kw_only=True):
    """The place of a waiting job in the order of claims of its queue.

    :param ahead: due jobs that come before, ``MOST_AHEAD`` at most
    :param is_more: more than these come before
    """

    ahead: int
    is_more: bool = False

    def __str__(self) -> str:
        return f"more than {self.ahead:,}" if self.is_more else f"{self.ahead:,}"


class Wake(Struct, frozen=True, kw_only=True):
    """Changes that are possible since the last wake-up. Every part is a hint, none is a promise.

    :param queues: queues that may have work that is due
    :param handover: some job with children has ended
    :param letters: some job has died whose queue names a queue for dead letters
    :param beat: a cancel was requested, slots were allocated, or a queue was paused, resumed
        or re-set: beat now
    :param fleet: pods came or went, or ``max_workers`` changed: the coordinator should look
    """

    queues: frozenset[str] = frozenset()
    handover: bool = False
    beat: bool = False
    fleet: bool = False
    letters: bool = False

    def __bool__(self) -> bool:
        return bool(self.queues or self.handover or self.beat or self.fleet or self.letters)
