"""Sequences that come back on Redis, counted in commands."""

import pytest

from forge_jobs.model.jobs import Line
from forge_jobs.storage.protocols import Storage
from tests.backends.redis.test_costs import Meter, meter, storage
from tests.support.factories import new_job, only

__all__ = ["meter", "storage"]

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("verb", ["requeue", "restore"])
@pytest.mark.parametrize("stays", [0, 1])
async def test_a_job_of_a_long_line_comes_back_by_as_few_commands_as_one_of_a_short_line(
    storage: Storage, meter: Meter, verb: str, stays: int
) -> None:
    async def cost(count: int) -> float:
        line = [new_job(sequence=Line(f"of {count}", "stop")) for _ in range(count + stays)]
        await storage.jobs.enqueue(line)
        back = only(*(job.id for job in line[:count]))
        await storage.jobs.cancel(back)
        await meter.reset()
        assert len((await getattr(storage.jobs, verb)(back)).changed) == count
        return (await meter.read()).inner / count

    assert await cost(160) < 1.2 * await cost(20)
