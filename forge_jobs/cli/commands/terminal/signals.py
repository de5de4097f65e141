"""Signals that end or stop a command which stays: the terminal is put back in order first."""

import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

_OF_A_SHELL = 128
"""Shells add this to the number of a signal."""


async def until_signal(
    work: Callable[[], Awaitable[None]],
    *,
    at_once: Callable[[], None] = lambda: None,
    away: Callable[[], AbstractContextManager[None]] | None = None,
) -> int:
    """Run ``work`` to the end, or until SIGINT, SIGTERM, SIGHUP or SIGQUIT.

    :param at_once: called when the signal comes. What the work waits for may take long to end
    :param away: gives the terminal to the shell within the context, and takes the terminal back.
        Entered when Ctrl-Z stops the program. None: the terminal is as the shell needs it
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
        if away is not None:
            group.start_soon(_stop_within, away)
        await work()
        group.cancel_scope.cancel()
    return code


async def _stop_within(away: Callable[[], AbstractContextManager[None]]) -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGTSTP) as received:
        async for _ in received:
            with away():
                _stop_here()


def _stop_here() -> None:
    """Stop this process until a shell lets the process go on."""
    ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        # The system ignores the signal where no shell could let the process go on.
        signal.raise_signal(signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, ours)
