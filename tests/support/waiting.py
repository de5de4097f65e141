"""Waiting for something to become true, instead of sleeping and hoping."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

_POLL_SECONDS = 0.003


async def wait_until(
    predicate: Callable[[], Any | Awaitable[Any]],
    *,
    description: str,
    timeout: float = 30,
) -> Any:
    """Poll ``predicate`` until it gives something true, and return that.

    :param predicate: a plain or an async function without parameters
    :param description: what is waited for, completes "still waiting until"
    :param timeout: seconds; above what a loaded machine needs, for it costs time only on failure
    :raises AssertionError: it did not become true in time
    """
    with anyio.move_on_after(timeout):
        while True:
            outcome = predicate()
            if inspect.isawaitable(outcome):
                outcome = await outcome
            if outcome:
                return outcome
            await anyio.sleep(_POLL_SECONDS)
    raise AssertionError(f"after {timeout} s still waiting until {description}")
