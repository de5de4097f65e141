"""The due time of a job that goes back to waiting: counted from now, whatever the old due time."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    MICROSECOND,
    SECOND,
    claim,
    claim_one,
    crashed,
    enqueue_one,
    failed,
    finish,
    get_job,
    register,
    revive,
    snoozed,
)

pytestmark = pytest.mark.anyio

LATE = 3 * DAY
"""How long the jobs here have been due when they are claimed."""


@pytest.mark.parametrize("transition", [failed(10 * SECOND), snoozed(10 * SECOND)])
async def test_a_job_long_overdue_is_due_again_a_delay_from_now(
    storage: Storage, clock: ManualClock, transition: Transition
) -> None:
    job_id = await enqueue_one(storage)
    clock.advance(LATE)
    lease = await register(storage)
    claimed = await claim_one(storage, lease)
    clock.advance(SECOND)
    ended_at = await storage.cron.now()
    assert await finish(storage, claimed, transition)

    assert (await get_job(storage, job_id)).due_at == ended_at + 10 * SECOND
    clock.advance(10 * SECOND - MICROSECOND)
    assert await claim(storage, lease) == []
    clock.advance(MICROSECOND)
    assert (await claim_one(storage, lease)).claim.job_id == job_id


async def test_a_revived_job_is_due_now_and_not_when_it_was(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.advance(LATE)
    now = await storage.cron.now()
    assert await revive(storage, claimed, crashed(delay=timedelta(0)))
    assert (await get_job(storage, job_id)).due_at == now
