"""Common parts of most sides: the two handlers, and workers that run beside the workload."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from bench.side import Tally

STOP_SECONDS = 15.0


@asynccontextmanager
async def beside(
    work: Coroutine[Any, Any, Any], stop: Callable[[], object] | None = None
) -> AsyncIterator[None]:
    """Run ``work`` while the block runs, then stop it, by a cancellation where nothing else is
    given.

    Work that ends before the block ends the process: a wait for jobs would never end.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(_end_the_process)
    try:
        yield
    finally:
        task.remove_done_callback(_end_the_process)
        if stop is None:
            task.cancel()
        else:
            stop()
        await asyncio.wait({task}, timeout=STOP_SECONDS)


def coroutines(
    tally: Tally,
) -> tuple[
    Callable[[int], Coroutine[Any, Any, None]], Callable[[float], Coroutine[Any, Any, None]]
]:
    """The no-op and the stamp, for libraries that run coroutines."""

    async def noop(n: int) -> None:
        tally.ran()

    async def stamp(sent: float) -> None:
        tally.arrive(sent)

    return noop, stamp


def functions(tally: Tally) -> tuple[Callable[[int], None], Callable[[float], None]]:
    """The same for libraries that run functions, on threads."""

    def noop(n: int) -> None:
        tally.ran()

    def stamp(sent: float) -> None:
        tally.arrive(sent)

    return noop, stamp


def _end_the_process(task: "asyncio.Task[Any]") -> None:
    error = None if task.cancelled() else task.exception()
    raise SystemExit(f"the worker has ended: {error!r}") from error
