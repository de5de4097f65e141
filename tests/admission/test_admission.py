"""Limits by key under random calls of several pods: bound, order, fairness, full use of each key.

``make admission SEEDS=10000`` tries more seeds. ``FORGE_TEST_ADMISSION_SEED`` repeats one.
"""

import os
from collections.abc import Iterable

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.support.admission import Admission
from tests.support.admission_shares import FairShares

_ONE = os.environ.get("FORGE_TEST_ADMISSION_SEED")
_MANY = int(os.environ.get("FORGE_TEST_ADMISSION_SEEDS", "0"))
_COUNTS = {"sqlite": 100, "redis": 30}
_FEW = 10
_PARTS = 5

# Two thousand seeds of a part take ten minutes beside other work.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600 + _MANY)]


def _seeds(backend: str, part: int) -> Iterable[int]:
    if _ONE:
        return [int(_ONE)] if part == 0 else []
    return range(part, _MANY or _COUNTS.get(backend, _FEW), _PARTS)


@pytest.mark.daily("-0]")
@pytest.mark.parametrize("part", range(_PARTS))
async def test_no_order_of_calls_passes_a_limit_or_leaves_a_key_with_room_idle(
    storage: Storage, clock: ManualClock, part: int, request: pytest.FixtureRequest
) -> None:
    for seed in _seeds(request.node.callspec.params["storage"], part):
        await Admission(storage, clock, seed).run()


@pytest.mark.daily("-0]")
@pytest.mark.parametrize("part", range(_PARTS))
async def test_no_order_of_calls_gives_a_slot_to_a_key_that_has_its_share(
    storage: Storage, clock: ManualClock, part: int, request: pytest.FixtureRequest
) -> None:
    for seed in _seeds(request.node.callspec.params["storage"], part):
        await FairShares(storage, clock, seed).run()
