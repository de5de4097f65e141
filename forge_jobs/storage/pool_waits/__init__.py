"""How long a call of a store has waited for a connection, which says nothing about the store.

A call may take several steps, and some at the same time. Time in which two of them wait counts
once.
"""

from contextvars import ContextVar

from forge_jobs.clock import SystemClock

_elapsed = SystemClock().elapsed


class PoolWait:
    """The waits of one call, on one event loop. A block is one wait.

    Set as :data:`OF_CALL` by the task that makes the call, and so by no Python function: each job
    is a few calls.
    """

    seconds = 0.0
    """Of the waits that have ended."""
    _waiting = 0
    _began = 0.0

    def __enter__(self) -> None:
        if self._waiting == 0:
            self._began = _elapsed()
        self._waiting += 1

    def __exit__(self, *exc_info: object) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self.seconds += _elapsed() - self._began


OF_CALL: ContextVar[PoolWait | None] = ContextVar("forge_jobs_pool_wait", default=None)
"""Collects the waits of a task, and of those that the task starts."""


def waiting_for_connection() -> PoolWait:
    """Return a block for a wait, which counts for the call that this task makes."""
    return OF_CALL.get() or PoolWait()
