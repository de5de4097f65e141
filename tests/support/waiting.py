"""Waiting for something to become true, instead of sleeping and hoping."""

import inspect
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

IN_PROCESS, OF_PROCESSES = 50.0, 100.0
"""Seconds for what happens in the process of the test, and for what further processes do.

Long waits cost time only on failure, and a loaded machine needs them. The first is less than the
minute after which a lane or a loop looks again without a wake-up.
"""

_patience = [IN_PROCESS]
_PAUSES = (0.003, 0.05)
_SHARE = 4
"""A look at a store takes time from the expected event: looks may take a fifth of it."""


def be_patient(seconds: float) -> None:
    """Set how long :func:`wait_until` waits where nothing else is said."""
    _patience[0] = seconds


async def wait_until(
    predicate: Callable[[], Any | Awaitable[Any]],
    *,
    description: str,
    timeout: float | None = None,
) -> Any:
    """Poll ``predicate`` until it gives something true, and return that.

    :param predicate: a plain or an async function without parameters
    :param description: the awaited condition, completes "still waiting until"
    :param timeout: seconds, those of :func:`be_patient` when left out
    :raises AssertionError: the condition did not become true in time
    """
    timeout = timeout or _patience[0]
    with anyio.move_on_after(timeout):
        while True:
            began = time.monotonic()
            outcome = predicate()
            if inspect.isawaitable(outcome):
                outcome = await outcome
            if outcome:
                return outcome
            took = time.monotonic() - began
            await anyio.sleep(min(max(_SHARE * took, _PAUSES[0]), _PAUSES[1]))
    raise AssertionError(f"after {timeout} s still waiting until {description}")


def all_stacks() -> str:
    """Return where every thread of the process is. For what a thread kept waiting for too long."""
    names = {each.ident: each.name for each in threading.enumerate()}
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    )
