"""Defaults that a handler brings to its jobs: as a program writes them, and as they are kept."""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.limits.concurrency import Limit
from forge_jobs.handlers.limits.rates import Rate
from forge_jobs.handlers.limits.sequences import Sequence
from forge_jobs.handlers.outcomes import errors_in
from forge_jobs.model.jobs import DEFAULT_MAX_ATTEMPTS, Unique
from forge_jobs.model.schedules import CatchUp, Overlap
from forge_jobs.policy.backoff import RetryPolicy
from forge_jobs.privacy.encryption import Encryption

Executor = Literal["thread", "process"]
Errors = type[BaseException] | Iterable[type[BaseException]]

GivenHooks = Callable[..., Any] | Iterable[Callable[..., Any]]
"""A function, or several."""


class JobOptions(TypedDict, total=False):
    """The options of ``HandlerRegistry.job(kind, **options)``, for type checkers::

        def nightly(function, kind: str, **options: Unpack[JobOptions]) -> Handler:
            return handlers.register(function, kind, queue="night", **options)

    :param aliases: further kinds of this handler, so that a rename strands no stored job
    :param queue: None: the router chooses
    :param priority: lower first, -100 to 100
    :param max_attempts: at least 1. None means no bound
    :param timeout: of one run, a timedelta or seconds. None means no limit
    :param retry: pause before the next attempt. When left out as the queue's settings say, else
        exponential with jitter
    :param retry_on: retry only these exceptions. None: all
    :param never_retry_on: a job that ends with one of these is dead at once
    :param tags: names to find jobs by
    :param keep_result: store what the handler returns
    :param max_crashes: after this many crashes of its process a job is dead. None: the setting
    :param max_snoozes: hand-backs by ``Snoozed`` or ``Throttled`` before the next one makes a
        job dead. None: they are bounded by time instead (``FORGE_SNOOZE_BUDGET``)
    :param executor: ``"process"`` runs the function in a process that is killed when the job
        is stopped and does not end. When left out, an ``async def`` runs on the event loop of
        the pod and a ``def`` in a thread
    :param max_memory: in bytes. The process is killed above that, and the attempt fails with a
        MemoryError
    :param max_runs_per_child: a process ends after so many jobs, and the next job gets a new
        one
    :param unique: the unique key, as in ``Unique(by=("customer",), mode="replace")``
    :param rate: how often jobs of the handler may start, as in ``Rate(10, per=60)``, or for each
        value of an argument ``Rate(10, per=60, key="{customer}")``
    :param concurrency: how many jobs of the handler run at once in a queue, as in ``Limit(5)``, or
        for each value of an argument ``Limit(2, key="{host}")``
    :param sequence: jobs of each key run one after the other, in the order of their enqueue, as in
        ``Sequence("order:{order_id}")``
    :param spread: each job is due later by a part of this window, a timedelta or seconds
    :param seed: a job of this handler exists at any time: the arguments of that job by name, True
        for none. A pod enqueues the job where there is none, and gives all attempts again to a dead
        one. A job that is done or cancelled has stopped, and stays so. Not with ``unique``
    :param middleware: around each run, inside of the registry's. A function that yields once,
        plain or asynchronous: the part before the yield runs before the handler, the part after
        behind it, and the yield raises what the run raises. An exception of the first part
        is the job's failure. One of the second part is kept on the job and changes no end
    :param enqueue_middleware: around each enqueue, inside of the registry's. A function
        of the request with ``outcome = yield request``, plain or asynchronous. The caller gets
        an exception of the first part, and the job is not stored. One of the second part is
        logged. The yield raises what the caller gets
    :param on_error: called when an attempt has failed: a function or a list, plain or asynchronous,
        with parameters that are injected, and ``RunEnd`` by annotation. Before the end is stored,
        in at most the setting ``patience`` altogether. An exception is kept on the job and changes
        no end
    :param on_retry: called after ``on_error`` when the job will be tried again
    :param on_dead: called after ``on_error`` when the job gives up
    :param on_done: called when the job is done
    """

    aliases: Iterable[str]
    queue: str | None
    priority: int
    max_attempts: int | None
    timeout: timedelta | float | None
    retry: RetryPolicy | None
    retry_on: Errors | None
    never_retry_on: Errors
    tags: Iterable[str]
    keep_result: bool
    max_crashes: int | None
    max_snoozes: int | None
    executor: Executor | None
    max_memory: int | None
    max_runs_per_child: int | None
    unique: Unique | None
    rate: Rate | None
    concurrency: Limit | None
    sequence: Sequence | None
    spread: timedelta | float | None
    seed: Mapping[str, Any] | bool | None
    middleware: Iterable[Callable[..., Any]]
    enqueue_middleware: Iterable[Callable[..., Any]]
    on_error: GivenHooks
    on_retry: GivenHooks
    on_dead: GivenHooks
    on_done: GivenHooks


class CronOptions(TypedDict, total=False):
    """The options of ``HandlerRegistry.cron(expression, **options)``, see ``schedule``."""

    timezone: str
    jitter: timedelta | float
    catch_up: CatchUp
    window: timedelta | float
    overlap: Overlap


def check_option_names(given: Mapping[str, object], known: Collection[str], of: str) -> None:
    """Refuse an option that is not there.

    :param of: what takes the options
    :raises InvalidInput: names the nearest one, else all
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {near[0]}?" if near else f"give one of {', '.join(sorted(known))}"
            raise InvalidInput(name, f"is not an option of {of}", fix)


class AroundEnqueue(Struct, frozen=True):
    """A middleware around enqueues.

    :param function: takes the request, and returns a generator
    :param name: for people
    """

    function: Callable[..., Any]
    name: str


class HandlerOptions(Struct, frozen=True, kw_only=True):
    """Options for jobs whose request names none: :class:`JobOptions`, checked.

    :param queue: None: the router chooses
    :param max_attempts: None means no bound
    :param timeout: of one run. None means no limit
    :param retry: how long to wait before the next attempt. None: as the queue's settings say
    :param retry_on: only these exceptions are retried. None: all
    :param never_retry_on: these make the job dead at once, also where ``retry_on`` lists them
    :param max_crashes: after this many crashes the job is dead. None: the runtime's setting
    :param max_snoozes: hand-backs by snooze or throttle before the next one makes the job dead.
        None: they are bounded by the runtime's ``snooze_budget``, a time
    :param encryption: of payloads and results: the registry's
    :param secrets: where the payload has fields marked ``Secret``, as in a job's metadata. "": none
    :param executor: where the function runs: in the pod, or in a process of its own
    :param max_memory: of that process and the processes it has started, in bytes
    :param max_runs_per_child: jobs of a process before another one takes its place
    :param unique: the unique key, mostly one that is derived from fields of the payload
    :param rate: how often jobs of the handler may start
    :param concurrency: how many jobs of the handler run at once
    :param sequence: of which jobs only one runs at a time, in the order of their enqueue
    :param spread: each job is due later by a part of this window
    :param seed: the arguments of the job that exists at any time. None: none need exist
    :param enqueue_middleware: around each enqueue, the first outermost
    """

    queue: str | None = None
    priority: int = 0
    max_attempts: int | None = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    retry: RetryPolicy | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    never_retry_on: tuple[type[BaseException], ...] = ()
    tags: tuple[str, ...] = ()
    keep_result: bool = True
    max_crashes: int | None = None
    max_snoozes: int | None = None
    encryption: Encryption | None = None
    secrets: str = ""
    executor: Executor | None = None
    max_memory: int | None = None
    max_runs_per_child: int | None = None
    unique: Unique | None = None
    rate: Rate | None = None
    concurrency: Limit | None = None
    sequence: Sequence | None = None
    spread: timedelta | None = None
    seed: Mapping[str, Any] | None = None
    enqueue_middleware: tuple[AroundEnqueue, ...] = ()

    def is_retryable(self, error: BaseException) -> bool:
        """True when a run that raised ``error`` may be tried again, attempts permitting.

        A group is tried again when each error in the group would be.
        """
        errors = errors_in(error)
        if any(isinstance(each, self.never_retry_on) for each in (error, *errors)):
            return False
        retried = self.retry_on
        if retried is None or isinstance(error, retried):
            return True
        return all(isinstance(each, retried) for each in errors)
