"""Sequences: jobs of a key come one after the other, in the order of their enqueue."""

from itertools import pairwise
from typing import Any

import anyio
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus, Line, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueSettings, Retention
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    QUEUE,
    SECOND,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.lines import claim_due, edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio


async def test_jobs_of_a_key_run_one_after_the_other(storage: Storage, lease: PodLease) -> None:
    line = [*await in_line(storage, 3), *await in_line(storage, 2), *await in_line(storage, 1)]
    assert await order_of(storage, lease) == line


async def test_keys_and_queues_do_not_wait_for_each_other(
    storage: Storage, lease: PodLease
) -> None:
    firsts = [(await in_line(storage, 2, key=key))[0] for key in "ab"]
    elsewhere = new_job(queue="other", sequence=Line("a"))
    await storage.jobs.enqueue([elsewhere])
    assert {job.claim.job_id for job in await claim_due(storage, lease)} == set(firsts)
    assert (await get_job(storage, elsewhere.id)).status is JobStatus.PENDING


async def test_a_head_that_fails_and_waits_keeps_its_place(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    line = await in_line(storage, 2)
    assert await run_one(storage, lease, failed(5 * SECOND)) == line[0]
    assert await claim_due(storage, lease) == []
    clock.advance(5 * SECOND)
    assert await order_of(storage, lease) == line


@pytest.mark.parametrize("rule", ["wait", "stop"])
async def test_a_dead_head_is_waited_for_until_it_has_been_requeued(
    storage: Storage, lease: PodLease, rule: str
) -> None:
    line = await in_line(storage, 2, rule)
    assert await run_one(storage, lease, dead()) == line[0]
    line += await in_line(storage, 1, rule)
    assert await claim_due(storage, lease) == []
    assert await edges_of(storage, line[1]) == {line[0]: EdgeState.HELD}
    await storage.jobs.requeue(only(line[0]))
    assert await order_of(storage, lease) == line


@pytest.mark.parametrize("rule", ["wait", "stop"])
async def test_a_dead_last_job_is_waited_for_by_those_that_come(
    storage: Storage, lease: PodLease, rule: str
) -> None:
    line = await in_line(storage, 1, rule)
    assert await run_one(storage, lease, dead()) == line[0]
    line += await in_line(storage, 1, rule)
    assert await claim_due(storage, lease) == []
    assert await edges_of(storage, line[1]) == {line[0]: EdgeState.HELD}
    await storage.jobs.release_held(only(line[1]))
    assert await order_of(storage, lease) == line[1:]


async def test_a_dead_head_is_skipped(storage: Storage, lease: PodLease) -> None:
    line = await in_line(storage, 2, "skip")
    assert await run_one(storage, lease, dead()) == line[0]
    assert await order_of(storage, lease) == line[1:]


async def test_a_cancelled_head_stops_the_line_only_where_that_is_asked(
    storage: Storage, lease: PodLease
) -> None:
    lines = {rule: await in_line(storage, 2, rule, key=rule) for rule in ("wait", "skip", "stop")}
    for first, _ in lines.values():
        assert (await storage.jobs.cancel(only(first))).changed == (first,)
    free = {job.claim.job_id for job in await claim_due(storage, lease)}
    assert free == {lines["wait"][1], lines["skip"][1]}


@pytest.mark.parametrize("rule", ["wait", "skip"])
@pytest.mark.parametrize("cancelled", [(1,), (1, 2), (2, 1)])
async def test_a_job_cancelled_in_the_middle_lets_none_overtake(
    storage: Storage, lease: PodLease, rule: str, cancelled: tuple[int, ...]
) -> None:
    line = await in_line(storage, 4, rule)
    [head] = await claim_due(storage, lease)
    for place in cancelled:
        assert (await storage.jobs.cancel(only(line[place]))).changed == (line[place],)
    assert await claim_due(storage, lease) == []
    line += await in_line(storage, 1, rule)
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [
        job for place, job in enumerate(line) if place not in (0, *cancelled)
    ]


async def test_who_comes_after_a_cancelled_last_job_waits_for_those_before(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 2, "skip")
    [head] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    line += await in_line(storage, 1, "skip")
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == line[2:]


@pytest.mark.parametrize("rule", ["wait", "skip"])
@pytest.mark.parametrize("deleted", [(1,), (1, 2), (2, 1), (3,), (2, 3), (3, 2)])
async def test_a_deleted_job_lets_none_overtake(
    storage: Storage, lease: PodLease, rule: str, deleted: tuple[int, ...]
) -> None:
    line = await in_line(storage, 4, rule)
    [head] = await claim_due(storage, lease)
    for place in deleted:
        assert (await storage.jobs.delete(only(line[place]))).changed == (line[place],)
    line += await in_line(storage, 1, rule)
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [
        job for place, job in enumerate(line) if place not in (0, *deleted)
    ]


async def test_many_deleted_at_once_let_none_overtake(storage: Storage, lease: PodLease) -> None:
    line = await in_line(storage, 6)
    [head] = await claim_due(storage, lease)
    gone = (line[1], line[2], line[4])
    assert (await storage.jobs.delete(JobFilter(ids=gone))).changed == tuple(sorted(gone))
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [line[3], line[5]]


async def test_a_job_deleted_before_its_cancel_is_handed_over_lets_none_overtake(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 3)
    [head] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    await storage.jobs.delete(only(line[1]))
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [line[2]]


async def test_a_deleted_job_inherits_no_place(storage: Storage, lease: PodLease) -> None:
    # What the store holds is looked over after the test.
    line = await in_line(storage, 3)
    await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    news = await storage.jobs.handovers(100)
    await storage.jobs.delete(only(line[2]))
    await storage.jobs.deliver([delivery(each) for each in news])
    assert [each.id for each in (await storage.jobs.kin([line[0]]))[line[0]].children] == [line[1]]


async def test_a_job_removed_before_its_cancel_is_handed_over_lets_none_overtake(
    storage: Storage, clock: ManualClock
) -> None:
    kept = QueueSettings(retention=Retention(cancelled=SECOND))
    await storage.config.ensure_queue(QUEUE, kept)
    first, middle, last = await in_line(storage, 3)
    await storage.jobs.cancel(only(middle))
    clock.advance(120 * SECOND)
    assert (await storage.jobs.cleanup(100)).removed == 1
    assert await order_of(storage, await register(storage)) == [first, last]


async def test_a_deleted_job_is_passed_by_the_policy_for_a_cancelled_one(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 3, "stop")
    assert await run_one(storage, lease, done()) == line[0]
    await tell(storage)
    await storage.jobs.delete(only(line[1]))
    assert await claim_due(storage, lease) == []
    assert await edges_of(storage, line[2]) == {line[1]: EdgeState.HELD}


async def test_a_job_that_expires_in_the_middle_lets_none_overtake(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first, last = (new_job(sequence=Line("k")) for _ in range(2))
    middle = new_job(sequence=Line("k"), expires_at=clock.now() + SECOND)
    await storage.jobs.enqueue([first, middle, last])
    [head] = await claim_due(storage, lease)
    clock.advance(2 * SECOND)
    assert await storage.jobs.expire(100) == 1
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [last.id]


async def test_a_named_parent_that_is_last_in_line_too_is_one_edge(
    storage: Storage, lease: PodLease
) -> None:
    [first] = await in_line(storage, 1)
    second = await enqueue_one(storage, after=(After(first, "cancel"),), sequence=Line("k"))
    assert await edges_of(storage, second) == {first: EdgeState.OPEN}
    assert await order_of(storage, lease) == [first, second]


@pytest.mark.parametrize("named", ["continue", "note"])
@pytest.mark.parametrize("is_early", [True, False])
async def test_who_names_a_cancelled_last_job_waits_for_those_before(
    storage: Storage, lease: PodLease, named: Any, is_early: bool
) -> None:
    _, last = await in_line(storage, 2)
    [head] = await claim_due(storage, lease)
    if is_early:
        await storage.jobs.cancel(only(last))
    child = await enqueue_one(storage, after=(After(last, named),), sequence=Line("k"))
    if not is_early:
        await storage.jobs.cancel(only(last))
    line = [child, *await in_line(storage, 1)]
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == line


@pytest.mark.parametrize("named", ["continue", "note", "hold", "cancel"])
@pytest.mark.parametrize("verb", ["cancel", "delete"])
async def test_a_removed_job_that_names_the_job_before_lets_none_overtake(
    storage: Storage, lease: PodLease, named: Any, verb: str
) -> None:
    [first] = await in_line(storage, 1)
    middle = await enqueue_one(storage, after=(After(first, named),), sequence=Line("k"))
    [last] = await in_line(storage, 1)
    [head] = await claim_due(storage, lease)
    await getattr(storage.jobs, verb)(only(middle))
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [last]


async def test_a_job_held_by_a_named_parent_is_released_behind_those_before(
    storage: Storage, lease: PodLease
) -> None:
    _, last = await in_line(storage, 2)
    child = await enqueue_one(storage, after=(After(last, "hold"),), sequence=Line("k"))
    [head] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(last))
    await tell(storage)
    await storage.jobs.release_held(only(child))
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    await tell(storage)
    await storage.jobs.release_held(only(child))
    assert await order_of(storage, lease) == [child]


async def test_a_job_cancelled_with_a_named_parent_lets_none_overtake(
    storage: Storage, lease: PodLease
) -> None:
    _, last = await in_line(storage, 2)
    child = await enqueue_one(storage, after=(After(last, "cancel"),), sequence=Line("k"))
    line = await in_line(storage, 1)
    [head] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(last))
    assert await claim_due(storage, lease) == []
    assert (await get_job(storage, child)).status is JobStatus.CANCELLED
    await finish(storage, head, done())
    assert await order_of(storage, lease) == line


async def test_a_named_parent_of_another_line_leaves_no_place(
    storage: Storage, lease: PodLease
) -> None:
    _, last = await in_line(storage, 2, key="other")
    child = await enqueue_one(storage, after=(After(last, "continue"),), sequence=Line("k"))
    await claim_due(storage, lease)
    await storage.jobs.cancel(only(last))
    assert [job.claim.job_id for job in await claim_due(storage, lease)] == [child]


async def test_a_named_parent_is_passed_by_its_own_word_and_those_before_by_the_rule(
    storage: Storage, lease: PodLease
) -> None:
    first, last = await in_line(storage, 2)
    child = await enqueue_one(storage, after=(After(last, "continue"),), sequence=Line("k"))
    assert (await edges_of(storage, child)).keys() == {last}
    [head] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(last))
    await tell(storage)
    await finish(storage, head, dead())
    assert await claim_due(storage, lease) == []
    assert (await edges_of(storage, child))[first] is EdgeState.HELD


async def test_a_dropped_duplicate_takes_no_place(storage: Storage, lease: PodLease) -> None:
    jobs = [new_job(sequence=Line("k"), unique=Unique("one")) for _ in range(2)]
    last = new_job(sequence=Line("k"))
    await storage.jobs.enqueue([*jobs, last])
    assert await order_of(storage, lease) == [jobs[0].id, last.id]


async def test_a_repeat_of_an_enqueue_keeps_the_places(storage: Storage, lease: PodLease) -> None:
    jobs = [new_job(sequence=Line("k")) for _ in range(3)]
    await storage.jobs.enqueue(jobs)
    await storage.jobs.enqueue(jobs[:2])
    assert await order_of(storage, lease) == [job.id for job in jobs]


async def test_enqueues_at_once_make_one_line(storage: Storage, lease: PodLease) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(in_line, storage, 3)
    assert len(await order_of(storage, lease)) == 24


async def test_a_long_line_in_one_call_is_in_the_order_of_the_call(storage: Storage) -> None:
    line = await in_line(storage, 150)
    parents = await storage.jobs.parents(line)
    assert parents == {child: (parent,) for parent, child in pairwise(line)}


async def test_a_removed_last_job_is_not_waited_for(storage: Storage, lease: PodLease) -> None:
    [first] = await in_line(storage, 1)
    assert await order_of(storage, lease) == [first]
    await storage.jobs.delete(only(first))
    [second] = await in_line(storage, 1)
    assert await storage.jobs.parents([second]) == {}
    assert await order_of(storage, lease) == [second]
    await storage.jobs.delete(only(second))  # And no record stays.


@pytest.mark.parametrize("verb", ["cancel", "delete"])
@pytest.mark.parametrize("rule", ["cancel", "continue", "hold", "note"])
async def test_a_named_parent_that_is_inherited_too_lets_no_job_overtake(
    storage: Storage, lease: PodLease, verb: str, rule: str
) -> None:
    head, second = await in_line(storage, 2)
    third = new_job(sequence=Line("k"), after=(After(head, rule),))  # type: ignore[arg-type]
    await storage.jobs.enqueue([third])
    [fourth] = await in_line(storage, 1)
    [running] = await claim_due(storage, lease)
    for each in (second, third.id):
        await getattr(storage.jobs, verb)(only(each))
        await tell(storage)
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [fourth]


@pytest.mark.parametrize("rule", ["wait", "stop"])
async def test_a_follow_up_passes_a_dead_job_with_its_key_and_no_other(
    storage: Storage, lease: PodLease, rule: Any
) -> None:
    keyed = {"sequence": Line("k", rule), "unique": Unique("u", mode="keep-last")}
    first = await enqueue_one(storage, **keyed)
    [running] = await claim_due(storage, lease)
    [second] = await in_line(storage, 1, rule)
    last = await enqueue_one(storage, **keyed)
    await finish(storage, running, dead())
    assert await claim_due(storage, lease) == []
    assert await edges_of(storage, last) == {first: EdgeState.SETTLED, second: EdgeState.OPEN}
    await storage.jobs.release_held(only(second))
    assert await order_of(storage, lease) == [second, last]
