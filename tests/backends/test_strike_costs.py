"""A thousand strikes that hold jobs cost a look as many statements as one."""

import pytest

from forge_jobs.model.strikes import Struck
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.jobs import struck
from tests.support.asked import asked, beside_notices
from tests.support.backends import BACKENDS
from tests.support.factories import new_job

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def hold(storage: Storage, marks: list[str]) -> None:
    """Store a job on hold for each of the marks."""
    await storage.jobs.enqueue([new_job(struck=Struck(mark)) for mark in marks])


async def test_a_look_for_jobs_to_release_costs_as_much_with_many_strikes_as_with_one(
    storage: Storage,
) -> None:
    async def cost(in_force: list[str]) -> int:
        await storage.jobs.release_struck(in_force, 10)
        with asked() as seen:
            assert await storage.jobs.release_struck(in_force, 10) == 0
        return beside_notices(seen)

    marks = [f"mark {number}" for number in range(60)]
    await hold(storage, marks[:1])
    one = await cost(marks)
    await hold(storage, marks[1:])
    assert await cost(marks) == one
    # A mark that no strike has is found among all others.
    assert await storage.jobs.release_struck(marks[:30] + marks[31:], 10) == 1


async def test_jobs_of_more_strikes_than_a_step_takes_are_released_by_one_call(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(struck, "MARKS_AT_ONCE", 2)
    marks = [f"mark {number}" for number in range(7)]
    await hold(storage, marks)
    await hold(storage, marks)
    # The last three of a step are too many for the limit.
    assert await storage.jobs.release_struck([], 5) == 5
    assert await storage.jobs.release_struck([], 10) == 9
    assert await storage.jobs.release_struck([], 10) == 0
