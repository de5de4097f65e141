"""How far a job travels through our modules, counted: never how long that takes.

A bound is the count of one day. Less is welcome, and then the bound follows. More needs a reason:
each further room is one more that a reader of the way of a job must know.
"""

import pytest

from tests.support.walks import Walk, way_of_a_run, way_of_an_enqueue

pytestmark = pytest.mark.anyio

ENQUEUE = {"sqlite": (24, 50), "postgres": (24, 48), "redis": (20, 39)}
RUN = {"sqlite": (36, 149), "postgres": (34, 119), "redis": (34, 130)}
"""Rooms and moves by store, see :mod:`tests.support.walks`. Before ADR 193 a run passed 38, 34 and
35 rooms, with 158, 131 and 143 moves. One move of each is for rates of handlers.

Of the enqueue on Postgres one room and five moves are for its wake-up (ADR 220), whose way came
behind the trace before."""


@pytest.fixture
def anyio_backend() -> str:
    """Name asyncio whatever ``FORGE_TEST_LOOP`` says: what was counted is true of this loop."""
    return "asyncio"


def excess(walk: Walk, bound: tuple[int, int]) -> str:
    """Return the whole way when it is longer than the bound, else ""."""
    rooms, moves = bound
    is_longer = len(walk.rooms) > rooms or walk.moves > moves
    return walk.report(f"at most {rooms} rooms and {moves} moves", steps=True) if is_longer else ""


@pytest.mark.parametrize("backend", RUN)
async def test_a_run_takes_no_longer_way_than_it_did(url: str, backend: str) -> None:
    assert not excess(await way_of_a_run(url), RUN[backend])


@pytest.mark.parametrize("backend", ENQUEUE)
async def test_an_enqueue_takes_no_longer_way_than_it_did(url: str, backend: str) -> None:
    assert not excess(await way_of_an_enqueue(url), ENQUEUE[backend])
