"""How long the level of a cool-down counts."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import CooldownPolicy, QueueChange
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim_one,
    enqueue_one,
    finish,
    snoozed,
)

pytestmark = pytest.mark.anyio

QUIET = 120 * SECOND
PAUSE = 10 * SECOND


async def throttled(storage: Storage, lease: PodLease, level: int) -> int:
    """Return the level after one more throttled run, whose worker believed in ``level``."""
    await storage.jobs.heartbeat(lease, [], LEASE * 100)
    claimed = await claim_one(storage, lease)
    await finish(storage, claimed, snoozed(cooldown=Cooldown(PAUSE, level)))
    [state] = await storage.config.queues()
    return state.cooldown_level


@pytest.mark.parametrize(
    ("after", "level"),
    [
        (PAUSE, 4),
        (PAUSE + QUIET - MICROSECOND, 4),
        (PAUSE + QUIET, 1),
        (PAUSE + 2 * QUIET, 1),
    ],
)
async def test_a_higher_level_counts_until_its_pause_has_been_over_for_the_quiet_time(
    *, storage: Storage, lease: PodLease, clock: ManualClock, after: timedelta, level: int
) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(cooldown=CooldownPolicy(quiet=QUIET)))
    await storage.jobs.heartbeat(lease, [], LEASE * 100)
    await enqueue_one(storage)
    assert await throttled(storage, lease, 4) == 4
    clock.advance(after)
    assert await throttled(storage, lease, 1) == level


async def test_a_cleared_cool_down_leaves_no_level(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    assert await throttled(storage, lease, 4) == 4
    await storage.config.clear_cooldown(QUEUE)
    assert await throttled(storage, lease, 1) == 1
