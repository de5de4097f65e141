"""Sequences whose jobs say different things of a job that ends before them without success.

What comes of it depends on the order of the ends alone, and not on how they are handed over.
"""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, finish, get_job, new_job, only, run_one
from tests.support.lines import claim_due, edges_of, order_of, tell

pytestmark = pytest.mark.anyio

_ORDERS = ["AB BC", "BC AB", "AB+BC", "BC+AB"]
"""Calls that hand ends over: the end of A to B, and that of B to C."""


async def _in_line(storage: Storage, *rules: Any) -> list[JobId]:
    jobs = [new_job(sequence=Line("k", rule)) for rule in rules]
    await storage.jobs.enqueue(jobs)
    return [job.id for job in jobs]


async def _hand_over(storage: Storage, line: list[JobId], order: str) -> None:
    names = dict(zip(line, "ABCD", strict=False))
    for call in order.split():
        found = await storage.jobs.handovers(100)
        news = {names[each.parent_id] + names[each.child_id]: each for each in found}
        await storage.jobs.deliver([delivery(news[pair]) for pair in call.split("+")])


@pytest.mark.parametrize("order", _ORDERS)
async def test_behind_a_job_that_was_cancelled_before_the_head_died_the_next_one_decides(
    storage: Storage, lease: PodLease, clock: ManualClock, order: str
) -> None:
    line = await _in_line(storage, "wait", "skip", "wait")
    [running] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    clock.advance(timedelta(seconds=1))
    await finish(storage, running, dead())
    await _hand_over(storage, line, order)
    await tell(storage)
    assert (await edges_of(storage, line[2]))[line[0]] is EdgeState.HELD
    assert await claim_due(storage, lease) == []
    await storage.jobs.requeue(only(line[0]))
    assert await order_of(storage, lease) == [line[0], line[2]]


@pytest.mark.parametrize("order", [*_ORDERS, "AB,BC"])
async def test_a_job_that_is_cancelled_after_it_passed_a_dead_head_lets_the_next_one_pass_too(
    storage: Storage, lease: PodLease, clock: ManualClock, order: str
) -> None:
    line = await _in_line(storage, "wait", "skip", "wait")
    assert await run_one(storage, lease, dead()) == line[0]
    early, _, late = order.rpartition(",")
    await _hand_over(storage, line, early)
    clock.advance(timedelta(seconds=1))
    await storage.jobs.cancel(only(line[1]))
    await _hand_over(storage, line, late)
    assert await order_of(storage, lease) == [line[2]]


@pytest.mark.parametrize("early", ["", "AB"])
async def test_a_job_that_is_deleted_after_it_passed_a_dead_head_lets_the_next_one_pass_too(
    storage: Storage, lease: PodLease, clock: ManualClock, early: str
) -> None:
    line = await _in_line(storage, "wait", "skip", "wait")
    assert await run_one(storage, lease, dead()) == line[0]
    await _hand_over(storage, line, early)
    clock.advance(timedelta(seconds=1))
    await storage.jobs.delete(only(line[1]))
    assert await order_of(storage, lease) == [line[2]]


@pytest.mark.parametrize("verb", ["cancel", "delete"])
@pytest.mark.parametrize("early", ["", "CD"])
async def test_a_job_that_ended_before_the_one_in_front_has_no_word_about_who_held_that_one(
    storage: Storage, lease: PodLease, clock: ManualClock, verb: str, early: str
) -> None:
    line = await _in_line(storage, "wait", "wait", "skip", "wait")
    assert await run_one(storage, lease, dead()) == line[0]
    await _hand_over(storage, line, "AB")
    clock.advance(timedelta(seconds=1))
    await storage.jobs.cancel(only(line[2]))
    await _hand_over(storage, line, early)
    clock.advance(timedelta(seconds=1))
    await getattr(storage.jobs, verb)(only(line[1]))
    await _hand_over(storage, line, "" if early else "BC")
    await tell(storage)
    assert (await edges_of(storage, line[3]))[line[0]] is EdgeState.HELD
    assert (await get_job(storage, line[3])).status is JobStatus.BLOCKED


@pytest.mark.parametrize("order", ["BC CD", "CD BC", "BC+CD", "CD+BC"])
async def test_of_jobs_that_are_cancelled_in_one_call_none_passes_the_head(
    storage: Storage, lease: PodLease, order: str
) -> None:
    line = await _in_line(storage, "wait", "stop", "skip", "wait")
    assert await run_one(storage, lease, dead()) == line[0]
    await _hand_over(storage, line, "AB")
    await storage.jobs.cancel(only(line[1], line[2]))
    await _hand_over(storage, line, order)
    await tell(storage)
    assert (await edges_of(storage, line[3]))[line[0]] is EdgeState.HELD
    assert await claim_due(storage, lease) == []


async def test_who_comes_behind_a_job_that_ended_before_the_head_died_waits_for_the_head(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    line = await _in_line(storage, "wait", "skip")
    [running] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    clock.advance(timedelta(seconds=1))
    await finish(storage, running, dead())
    await tell(storage)
    line += await _in_line(storage, "wait")
    assert await claim_due(storage, lease) == []
    assert (await edges_of(storage, line[2]))[line[0]] is EdgeState.HELD
