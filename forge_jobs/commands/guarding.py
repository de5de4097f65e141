"""Starts and awaits guarded programs for handlers: nothing is left behind, however a run ends."""

import asyncio
import errno
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from forge_jobs.handlers.outcomes import Failed, Snoozed
from forge_jobs.runtime.executors.guarded import GuardedProgram, NoProcess, ProgramEnd

T = TypeVar("T")

_FOR_WANT_OF = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors of a system that is full at the moment, which are no fault of the job."""

_AGAIN_AFTER = 5.0
_KILLED_AFTER = 10.0
"""Seconds for a program to end by SIGTERM. A second cancellation of the handler kills sooner: after
the patience of the pod."""


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Do ``work`` to the end also when cancelled, and raise the cancellation then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()


async def end_of(program: GuardedProgram) -> ProgramEnd:
    """Wait until no process of the program is left.

    :raises CancelledError: the wait was cancelled, the program was stopped, and no process is left
    """
    try:
        return await asyncio.shield(program.ended)
    except asyncio.CancelledError:
        await stop(program)
        raise


async def stop(program: GuardedProgram) -> None:
    """Send SIGTERM to the process group, and return when no process of the program is left.

    A cancellation kills all processes, and so does the end of a while.
    """
    program.terminate()
    timer = asyncio.get_running_loop().call_later(_KILLED_AFTER, program.kill)
    while not program.ended.done():
        try:
            await asyncio.shield(program.ended)
        except asyncio.CancelledError:
            program.kill()
    timer.cancel()


async def killed(program: GuardedProgram) -> None:
    """Kill a program that may have been started, and wait until no process is left."""
    if not program.guardian_id:
        return
    program.kill()
    while not program.ended.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(program.ended)


def not_started(name: str, error: NoProcess | OSError) -> Failed | Snoozed:
    """Return the outcome of a job whose program could not be started."""
    if error.errno in _FOR_WANT_OF:
        return Snoozed(_AGAIN_AFTER)
    return Failed(f"{name} could not be started: {error}")
