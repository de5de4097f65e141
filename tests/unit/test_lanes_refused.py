"""Lanes whose store refuses: one item of a call, or every item."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import anyio.lowlevel
import pytest

from forge_jobs.errors import StorageRefused
from forge_jobs.lanes import Lane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

REFUSED = "the database refused the statement (SQLSTATE P0001)"


class Store:
    """Refuses calls that hold one of ``refused``. None: every call."""

    def __init__(self, refused: frozenset[int] | None) -> None:
        self.refused = refused
        self.calls: list[list[int]] = []

    async def call(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        if self.refused is None or self.refused.intersection(items):
            raise StorageRefused(REFUSED)
        return [item * 2 for item in items]


@pytest.mark.parametrize("refused", [0, 7, 19])
async def test_one_item_that_is_refused_alone_holds_up_no_other(refused: int) -> None:
    store = Store(frozenset({refused}))
    lane = Lane(store.call)
    waiting = asyncio.gather(*(lane.submit(n) for n in range(20)), return_exceptions=True)
    others = asyncio.gather(*(lane.submit(n) for n in range(20, 25)))
    assert await others == [40, 42, 44, 46, 48]
    await wait_until(lambda: store.calls.count([refused]) >= 3, description="it is sent again")
    assert await lane.submit(25) == 50
    store.refused = frozenset()
    assert await waiting == [n * 2 for n in range(20)]


async def test_an_item_that_is_refused_for_long_is_told_so_and_nobody_else_is() -> None:
    store = Store(frozenset({3}))
    lane = Lane(store.call, repeat_for=timedelta(milliseconds=300))
    outcomes = await asyncio.gather(*(lane.submit(n) for n in range(8)), return_exceptions=True)
    [told] = [each for each in outcomes if isinstance(each, BaseException)]
    assert isinstance(told, StorageRefused)
    assert str(told) == REFUSED
    assert outcomes[3] is told


async def test_a_store_that_refuses_everything_is_not_searched_and_is_asked_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(None)
    lane = Lane(store.call)
    pauses: list[float] = []

    async def no_pause(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("forge_jobs.lanes._wait", no_pause)
    monkeypatch.setattr("forge_jobs.outages._random.uniform", lambda low, high: high)
    monkeypatch.setattr(lane, "_submit_again", _told)
    for _ in range(4):
        before = len(store.calls)
        await asyncio.gather(*(lane.submit(n) for n in range(64)), return_exceptions=True)
        # All of them, seven halves down to one, and the neighbour.
        assert len(store.calls) - before == 8
        await wait_until(lambda: lane._task is None, description="the pause is over")
    assert pauses == [0.05, 0.1, 0.2, 0.4]

    store.refused = frozenset()
    assert await lane.submit(1) == 2
    assert lane._refusals == 0


async def _told(item: int, error: StorageRefused) -> int:
    raise error


async def test_nobody_is_told_of_a_refusal_that_is_over_in_time() -> None:
    store = Store(None)
    lane = Lane(store.call)
    waiting = asyncio.gather(*(lane.submit(n) for n in range(64)))
    await wait_until(lambda: len(store.calls) > 20, description="it is asked again and again")
    store.refused = frozenset()
    assert await waiting == [n * 2 for n in range(64)]
    await asyncio.wait_for(lane.flush(), 10)
