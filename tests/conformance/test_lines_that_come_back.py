"""Long sequences that are cancelled and come back in one call."""

import pytest

from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import only
from tests.support.lines import edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio

_JOBS = 30


@pytest.mark.parametrize("rule", ["wait", "stop"])
@pytest.mark.parametrize("verb", ["requeue", "restore"])
@pytest.mark.parametrize("stays", [0, 1])
async def test_a_line_that_comes_back_has_few_edges_for_each_job(
    storage: Storage, lease: PodLease, rule: str, verb: str, stays: int
) -> None:
    line = await in_line(storage, _JOBS + stays, rule)
    back = line[:_JOBS]
    await storage.jobs.cancel(only(*back))
    assert (await getattr(storage.jobs, verb)(only(*back))).changed == tuple(back)
    waiting = [
        sum(edge.waits for edge in (await edges_of(storage, each)).values()) for each in line
    ]
    # On Redis the last job waits once more for each step of the call.
    assert sum(waiting) < len(line) + 3, "some job waits for all before"
    assert await order_of(storage, lease) == line


@pytest.mark.parametrize("stays", [0, 1])
async def test_a_line_that_comes_back_against_its_order_has_few_edges_for_each_job(
    storage: Storage, lease: PodLease, stays: int
) -> None:
    line = await in_line(storage, _JOBS + stays, "stop")
    await storage.jobs.cancel(only(*line[:_JOBS]))
    await tell(storage)
    for each in reversed(line[:_JOBS]):
        await storage.jobs.requeue(only(each))
    waiting = [
        sum(edge.waits for edge in (await edges_of(storage, each)).values()) for each in line
    ]
    assert sum(waiting) < 5 * len(line), "each job comes to wait for all before"
    assert await order_of(storage, lease) == line
