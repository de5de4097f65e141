"""Limits by key under random calls of several pods: bound, order, fairness, full use of each key.

``make admission SEEDS=10000`` tries more seeds. ``FORGE_TEST_ADMISSION_SEED`` repeats one.
"""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.admission.seeds import LONG_ENOUGH, PARTS, seeds
from tests.support.admission import Admission
from tests.support.admission_shares import FairShares

pytestmark = [pytest.mark.anyio, LONG_ENOUGH]


@pytest.mark.daily("-0]")
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_order_of_calls_passes_a_limit_or_leaves_a_key_with_room_idle(
    storage: Storage, clock: ManualClock, part: int, request: pytest.FixtureRequest
) -> None:
    for seed in seeds(request.node.callspec.params["storage"], part):
        await Admission(storage, clock, seed).run()


@pytest.mark.daily("-0]")
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_order_of_calls_gives_a_slot_to_a_key_that_has_its_share(
    storage: Storage, clock: ManualClock, part: int, request: pytest.FixtureRequest
) -> None:
    for seed in seeds(request.node.callspec.params["storage"], part):
        await FairShares(storage, clock, seed).run()
