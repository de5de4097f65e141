"""Calls about many jobs, in steps that keep all other calls waiting for a moment only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from forge_jobs.errors import Unavailable
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.parts import Answers

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
    for step in steps_of(items):
        requests = {base: request(base, some) for base, some in step.items()}
        for base, answers in (await db.run(name, requests, answer)).items():
            told[base] += answers
    return told


async def run_some_in_steps(
    db: Database,
    name: str,
    items: Mapping[str, Sequence[object]],
    answer: type[list[T]],
    at_once: int,
) -> Answers[list[T]]:
    """``Database.run_some`` over many items, the items of a step as they are. A base that is silent
    in one step is silent.
    """
    told: dict[str, list[T]] = {base: [] for base in items}
    silent: dict[str, Unavailable] = {}
    for step in steps_of(items, at_once):
        answers, missing = await db.run_some(name, step, answer)
        silent |= missing
        for base, each in answers.items():
            told[base] += each
    return Answers({base: each for base, each in told.items() if base not in silent}, silent)


def steps_of(
    items: Mapping[str, Sequence[Item]], at_once: int = ITEMS_AT_ONCE
) -> Iterator[dict[str, Sequence[Item]]]:
    """Split the items into steps, in their order."""
    step: dict[str, Sequence[Item]] = {}
    room = at_once
    for base, each in items.items():
        start = 0
        while start < len(each):
            step[base] = some = each[start : start + room]
            start, room = start + len(some), room - len(some)
            if not room:
                yield step
                step, room = {}, at_once
    if step:
        yield step
