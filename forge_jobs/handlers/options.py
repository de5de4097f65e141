"""Defaults that a handler brings to its jobs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from forge_jobs.model.jobs import DEFAULT_MAX_ATTEMPTS, Unique
from forge_jobs.policy.backoff import RetryPolicy
from forge_jobs.privacy.encryption import Encryption

Executor = Literal["thread", "process"]


class AroundEnqueue(Struct, frozen=True):
    """A middleware around enqueues.

    :param function: takes the request, and returns a generator
    :param name: for people
    """

    function: Callable[..., Any]
    name: str


class HandlerOptions(Struct, frozen=True, kw_only=True):
    """Options for jobs whose request names none.

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
    :param spread: each job is due later by a part of this window
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
    spread: timedelta | None = None
    enqueue_middleware: tuple[AroundEnqueue, ...] = ()

    def is_retryable(self, error: BaseException) -> bool:
        """True when a run that raised ``error`` may be tried again, attempts permitting."""
        if isinstance(error, self.never_retry_on):
            return False
        return self.retry_on is None or isinstance(error, self.retry_on)
