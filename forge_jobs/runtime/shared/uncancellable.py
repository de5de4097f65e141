"""Tasks that a cancellation from outside hurries, and does not cut short."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


class UncancellableTask(asyncio.Task[T]):
    """A task that goes on when cancelled.

    For the end of a pod. A program that cancels all tasks of its loop, as ``asyncio.run`` does at
    its end, waits for them, and the ends of jobs must reach the store. The work must end by itself.
    It may wait for futures and other tasks, but must not use ``asyncio.timeout`` or a cancel scope:
    those cancel the task in which they run.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        """Ignore the cancellation."""
        return False


async def wait_to_its_end(
    task: "asyncio.Future[T]", hurry: Callable[[], None], *, shielded: bool = False
) -> T:
    """Wait for ``task`` however often the caller is cancelled. Each cancellation calls ``hurry``.

    :param shielded: the caller's anyio scopes may be cancelled already, which hurries nothing
    :raises asyncio.CancelledError: the caller was cancelled meanwhile, and ``task`` is done
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            # A scope that was cancelled would cancel each further step.
            with anyio.CancelScope(shield=shielded or cancelled is not None):
                await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            hurry()
    if cancelled is not None:
        raise cancelled
    return task.result()
