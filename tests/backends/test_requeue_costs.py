"""Sequences that come back on a SQL database, counted in statements."""

import pytest

from forge_jobs.model.jobs import Line
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.jobs.sequences.reaching import Walk
from tests.support.asked import asked, beside_notices
from tests.support.factories import new_job, only

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("place", [0, -1])
async def test_a_job_comes_back_into_a_long_line_by_as_many_statements_as_into_a_short_one(
    storage: Storage, place: int
) -> None:
    async def cost(count: int) -> int:
        line = [new_job(sequence=Line(f"of {count}")) for _ in range(count)]
        await storage.jobs.enqueue(line)
        await storage.jobs.cancel(only(*(job.id for job in line)))
        with asked() as seen:
            await storage.jobs.requeue(only(line[place].id))
        return beside_notices(seen)

    await cost(8)
    assert await cost(100) == await cost(10)


@pytest.mark.parametrize("is_in_order", [True, False])
def test_places_of_a_whole_line_are_found_by_few_looks_at_each_job(is_in_order: bool) -> None:
    looks, ended = 0, set(range(1_000))

    def is_passed(each: str) -> bool:
        nonlocal looks
        looks += 1
        return int(each) in ended

    walk = Walk({str(each): [str(each + 1)] for each in ended}, is_passed)
    for each in sorted(ended, reverse=not is_in_order):
        nearest = 1_000 if is_in_order else each + 1
        assert walk.reached([str(each + 1)]) == {str(nearest)}
        ended.discard(each)
        walk.forget(str(each))
    assert looks < 5 * 1_000


def test_a_way_that_was_looked_at_from_further_on_is_not_looked_at_again() -> None:
    looks = 0

    def is_passed(each: str) -> bool:
        nonlocal looks
        looks += 1
        return int(each) < 1_000

    walk = Walk({str(each): [str(each + 1)] for each in range(1_000)}, is_passed)
    for each in reversed(range(1_000)):
        assert walk.reached([str(each)]) == {"1000"}
    assert looks < 5 * 1_000


def test_who_is_passed_no_longer_is_in_the_way() -> None:
    ended = set(range(10))
    walk = Walk({str(each): [str(each + 1)] for each in ended}, lambda each: int(each) in ended)
    assert walk.reached(["0"]) == {"10"}
    ended.discard(5)
    walk.forget("5")
    assert [walk.reached([start]) for start in ("0", "6")] == [{"5"}, {"10"}]


def test_jobs_that_wait_for_each_other_are_passed_once() -> None:
    ways = {"a": ["b"], "b": ["a", "c", "d"], "d": ["b", "e"]}
    walk = Walk(ways, lambda each: each in ways)
    assert walk.reached(["a"]) == {"c", "e"}
    assert walk.reached(["d", "x"]) == {"c", "e", "x"}
