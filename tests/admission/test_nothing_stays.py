"""After any deeds of pods, programs and operators each job of a queue ends.

``make admission SEEDS=10000`` tries more seeds. ``FORGE_TEST_ADMISSION_SEED`` repeats one.
"""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.admission.seeds import LONG_ENOUGH, PARTS, seeds
from tests.support.deeds import Deeds

pytestmark = [pytest.mark.anyio, LONG_ENOUGH]


@pytest.mark.daily("-0]")
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_job_is_left_on_hold_or_never_claimed(
    storage: Storage, clock: ManualClock, part: int, request: pytest.FixtureRequest
) -> None:
    for seed in seeds(request.node.callspec.params["storage"], part):
        left = await Deeds(storage, clock, seed).run()
        assert not left, f"seed {seed}: {left[:3]}"
