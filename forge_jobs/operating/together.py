"""Reads that do not need each other, made at once.

On a busy store each call waits for its turn. A page that makes one call after the other waits as
often as the page asks.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar, overload

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_D = TypeVar("_D")
_E = TypeVar("_E")
_Call = Awaitable[_A]


@overload
async def together(one: _Call[_A], two: _Call[_B], /) -> tuple[_A, _B]: ...


@overload
async def together(
    one: _Call[_A], two: _Call[_B], three: _Call[_C], four: _Call[_D], five: _Call[_E], /
) -> tuple[_A, _B, _C, _D, _E]: ...


async def together(*calls: _Call[Any]) -> tuple[Any, ...]:
    """Return the answers of calls that are made at once, each in its type. See :func:`all_of`."""
    return tuple(await all_of(calls))


async def all_of(calls: Sequence[_Call[_A]]) -> list[_A]:
    """Return the answers of calls that are made at once, in their order.

    The first error ends the others, and is raised.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
