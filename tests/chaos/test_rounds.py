"""A few rounds on each backend. ``make chaos`` runs many.

``FORGE_CHAOS_SEED`` repeats a run.
"""

import os
import random
from pathlib import Path

import pytest

from tests.chaos.checker import judge
from tests.chaos.every_store import STORES
from tests.chaos.pace import QUICK
from tests.chaos.run import Plan, run
from tests.support.backends import BACKENDS

SEED = int(os.environ.get("FORGE_CHAOS_SEED", random.SystemRandom().randrange(10**9)))

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.long,
]


_ON_PODS = ("kill", "kill_leader", "stop", "freeze")


@pytest.mark.parametrize("backend", [name for name in STORES if name in BACKENDS])
async def test_whatever_is_done_to_pods_and_store_no_promise_is_broken(
    backend: str, tmp_path: Path
) -> None:
    print(f"FORGE_CHAOS_SEED={SEED}")
    plan = Plan(backend=backend, rounds=4, jobs=50, seed=SEED, pace=QUICK)

    outcome = await run(plan, tmp_path, print)

    verdict = judge(outcome.record, outcome.ledger, outcome.stored, outcome.counters, outcome.known)
    assert verdict.is_good, verdict
    assert len(outcome.stored) >= 400


@pytest.mark.parametrize("backend", [name for name in BACKENDS if f"limits-{name}" in STORES])
async def test_no_key_passes_its_limit_or_is_left_idle_and_no_job_is_out_of_sequence(
    backend: str, tmp_path: Path
) -> None:
    print(f"FORGE_CHAOS_SEED={SEED}")
    plan = Plan(f"limits-{backend}", rounds=10, jobs=30, seed=SEED, pace=QUICK, only=_ON_PODS)

    outcome = await run(plan, tmp_path, print)

    told = outcome.recorded
    assert (told.passed, told.idle, told.crossed) == ([], [], [])
    verdict = judge(outcome.record, outcome.ledger, outcome.stored, outcome.counters, outcome.known)
    assert verdict.is_good, verdict
    assert told.full > 0, "no key was ever full: nothing was tried"
    assert told.members > 0, "no job of a sequence was claimed: nothing was tried"
    limited = sum(bool(sending.permit) for sending in outcome.record.sendings.values())
    assert backend == "redis" or told.claims >= limited
