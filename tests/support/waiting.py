"""Waiting for something to become true, instead of sleeping and hoping."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

_PAUSES = (0.003, 0.05)
_SHARE = 4
"""A look at a store takes time from the expected event: looks may take a fifth of it."""


async def wait_until(
    predicate: Callable[[], Any | Awaitable[Any]],
    *,
    description: str,
    timeout: float = 30,
) -> Any:
    """Poll ``predicate`` until it gives something true, and return that.

    :param predicate: a plain or an async function without parameters
    :param description: the awaited condition, completes "still waiting until"
    :param timeout: seconds, above what a loaded machine needs: only a failure costs this time
    :raises AssertionError: the condition did not become true in time
    """
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
