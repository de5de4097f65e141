"""Costs of a claim where jobs of kinds that only other pods know stand in front."""

import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim
from tests.support.mixed_queues import FEW, MANY, MINE, VERY_MANY, put_behind, two_pods
from tests.support.sqlite_steps import steps_of_sqlite

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("many", [MANY, pytest.param(VERY_MANY, marks=pytest.mark.long)])
async def test_sqlite_takes_as_many_steps_with_many_of_them_as_with_few(
    storage: Storage, many: int
) -> None:
    lease = await two_pods(storage)
    used = []
    for others in (FEW, many):
        ids = await put_behind(storage, others)
        with steps_of_sqlite() as steps:
            claimed = await claim(storage, lease, limit=10, kinds=MINE)
        assert [each.claim.job_id for each in claimed] == ids
        used.append(steps[0])
    assert used[1] <= used[0] + 5, "hundreds of steps"
