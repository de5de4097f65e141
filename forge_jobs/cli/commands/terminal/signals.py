"""Signals that end a command which stays: the terminal is put back in order first."""

import signal
from collections.abc import Awaitable, Callable

_OF_A_SHELL = 128
"""Shells add this to the number of a signal."""


async def until_signal(
    work: Callable[[], Awaitable[None]], *, at_once: Callable[[], None] = lambda: None
) -> int:
    """Run ``work`` to the end, or until SIGINT, SIGTERM, SIGHUP or SIGQUIT.

    :param at_once: called when the signal comes. What the work waits for may take long to end
    :returns: 0, or the exit code that stands for the signal: 130 for Ctrl-C
    """
    import anyio

    code = 0
    async with anyio.create_task_group() as group:

        async def listen(*, task_status: "anyio.abc.TaskStatus[None]") -> None:
            nonlocal code
            wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
            with anyio.open_signal_receiver(*wanted) as received:
                task_status.started()
                async for number in received:
                    code = _OF_A_SHELL + number
                    at_once()
                    group.cancel_scope.cancel()
                    return

        await group.start(listen)
        await work()
        group.cancel_scope.cancel()
    return code
