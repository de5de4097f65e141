"""A large action leaves most of the time to the pods, and a small one is over at once."""

import anyio
import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.actions import recording
from forge_jobs.operating.actions.recording import LONGEST_REST, RESTS, UNHURRIED_FROM, Pace
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job

pytestmark = pytest.mark.anyio


def test_a_driver_rests_after_the_first_steps() -> None:
    pace = Pace()
    assert [pace.rest(0.1) for _ in range(UNHURRIED_FROM - 1)] == [0.0] * (UNHURRIED_FROM - 1)
    assert pace.rest(0.1) == pytest.approx(0.1 * RESTS)
    assert pace.rest(60.0) == LONGEST_REST


async def test_an_action_of_many_steps_rests_between_them(
    sqlite_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    sleep = anyio.sleep

    async def noted(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(recording, "AT_ONCE", 10)
    monkeypatch.setattr("forge_jobs.operating.actions.recording.anyio.sleep", noted)
    for queue in ("a", "b"):
        await sqlite_storage.jobs.enqueue([new_job(queue=queue) for _ in range(35)])
    async with Operator(sqlite_storage, Actor(name="ada", access=ALL)) as operator:
        await operator.cancel_jobs(JobFilter(queues=("a", "b")))
    # Of four steps in each queue the last one has no rest.
    assert len(rests) == 6
    assert rests[: UNHURRIED_FROM - 1] == [0.0] * (UNHURRIED_FROM - 1)
    assert all(rests[UNHURRIED_FROM - 1 :])
    counts = await sqlite_storage.jobs.counts()
    assert [each.by_status[JobStatus.CANCELLED] for each in counts.values()] == [35, 35]
