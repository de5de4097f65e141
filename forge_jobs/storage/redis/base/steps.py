"""Calls about many jobs, in steps that keep all other calls waiting for a moment only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from forge_jobs.storage.redis.base.database import Database

T = TypeVar("T")
Item = TypeVar("Item")

ITEMS_AT_ONCE = 60
"""How many jobs one step changes at most: at 20 to 95 us each, all other calls wait as long."""


async def run_in_steps(
    db: Database,
    name: str,
    items: Mapping[str, Sequence[Item]],
    request: Callable[[str, Sequence[Item]], object],
    answer: type[list[T]],
) -> dict[str, list[T]]:
    """``Database.run`` over many items, a bounded number in each step.

    :param items: per base, in the order of the steps
    :param request: makes the request for some items of a base. Their answers come in order
    """
    told: dict[str, list[T]] = {base: [] for base in items}
    for step in _steps(items):
        requests = {base: request(base, some) for base, some in step.items()}
        for base, answers in (await db.run(name, requests, answer)).items():
            told[base] += answers
    return told


def _steps(items: Mapping[str, Sequence[Item]]) -> Iterator[dict[str, Sequence[Item]]]:
    """The items in their order."""
    step: dict[str, Sequence[Item]] = {}
    room = ITEMS_AT_ONCE
    for base, each in items.items():
        start = 0
        while start < len(each):
            step[base] = some = each[start : start + room]
            start, room = start + len(some), room - len(some)
            if not room:
                yield step
                step, room = {}, ITEMS_AT_ONCE
    if step:
        yield step
