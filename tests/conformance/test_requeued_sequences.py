"""Members of sequences that wait again: none runs beside another of its key, or waits for ever."""

import pytest

from forge_jobs.model.edges import WAITING, EdgeState
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.jobs import After, JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    QUEUE,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    only,
    run_one,
)
from tests.support.lines import claim_due, edges_of, in_line, order_of, tell

pytestmark = pytest.mark.anyio


async def test_a_dead_job_that_was_skipped_comes_last(storage: Storage, lease: PodLease) -> None:
    line = await in_line(storage, 4, "skip")
    assert await run_one(storage, lease, dead()) == line[0]
    [running] = await claim_due(storage, lease)
    assert (await storage.jobs.requeue(only(line[0]))).changed == (line[0],)
    assert await claim_due(storage, lease) == []
    line += await in_line(storage, 1, "skip")
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [*line[2:4], line[0], line[4]]


async def test_a_dead_job_runs_at_once_where_all_others_have_ended(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 2, "skip")
    assert await run_one(storage, lease, dead()) == line[0]
    assert await order_of(storage, lease) == [line[1]]
    await storage.jobs.requeue(only(line[0]))
    line += await in_line(storage, 1)
    assert await order_of(storage, lease) == [line[0], line[2]]


@pytest.mark.parametrize("all_come_back", [False, True])
async def test_jobs_that_come_back_in_one_call_run_one_at_a_time_whatever_the_order_of_their_ids(
    storage: Storage, lease: PodLease, all_come_back: bool
) -> None:
    first, moved, third, fourth = await in_line(storage, 4)
    await storage.jobs.cancel(only(moved))
    await tell(storage)
    await storage.jobs.requeue(only(moved))  # comes last, so its id is before that of the job ahead
    [behind] = await in_line(storage, 1)
    # With all, the third one has settled with the moved one, which comes back behind.
    coming = (moved, third, fourth) if all_come_back else (moved, fourth)
    await storage.jobs.cancel(only(*coming))

    outcome = await storage.jobs.requeue(only(*coming))

    assert set(outcome.changed) == set(coming)
    order = await order_of(storage, lease)
    assert order[0] == first
    assert sorted(order[1:]) == sorted([moved, third, fourth, behind])


async def test_a_cancelled_job_that_was_passed_comes_last(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 3)
    await storage.jobs.cancel(only(line[1]))
    [running] = await claim_due(storage, lease)
    assert (await storage.jobs.requeue(only(line[1]))).changed == (line[1],)
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [line[2], line[1]]


@pytest.mark.parametrize("rule", ["wait", "skip", "stop"])
@pytest.mark.parametrize("verb", ["requeue", "restore"])
async def test_a_cancel_that_no_job_knows_of_is_taken_back_in_place(
    storage: Storage, lease: PodLease, rule: str, verb: str
) -> None:
    line = await in_line(storage, 3, rule)
    for place in (1, 2):
        await storage.jobs.cancel(only(line[place]))
    for place in (1, 2) if verb == "restore" else (1,):
        outcome = await getattr(storage.jobs, verb)(only(line[place]))
        assert outcome.changed == (line[place],)
    assert await order_of(storage, lease) == line[: 3 if verb == "restore" else 2]


async def test_a_restored_last_job_waits_for_those_before(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 3, "skip")
    [running] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    await storage.jobs.cancel(only(line[2]))
    assert (await storage.jobs.restore(only(line[2]))).changed == (line[2],)
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [line[2]]


@pytest.mark.parametrize("at_once", [True, False])
async def test_several_come_last_in_their_order(
    storage: Storage, lease: PodLease, at_once: bool
) -> None:
    line = await in_line(storage, 4, "skip")
    for place in range(4):
        assert await run_one(storage, lease, dead()) == line[place]
        await tell(storage)
    if at_once:
        await storage.jobs.requeue(JobFilter(ids=tuple(line[:3])))
        assert await order_of(storage, lease) == line[:3]
    else:
        for place in (2, 0, 3):
            await storage.jobs.requeue(only(line[place]))
        assert await order_of(storage, lease) == [line[2], line[0], line[3]]


async def test_one_that_is_waited_for_keeps_its_place_before_another_that_does_not(
    storage: Storage, lease: PodLease
) -> None:
    passed = await in_line(storage, 1, "skip")
    head = await in_line(storage, 1, "skip")
    behind = await in_line(storage, 2, "stop")
    for job in (*passed, *head):
        assert await run_one(storage, lease, dead()) == job
        await tell(storage)
    await storage.jobs.requeue(only(passed[0]))
    assert await claim_due(storage, lease) == []
    await storage.jobs.requeue(only(head[0]))
    assert await order_of(storage, lease) == [*head, *behind, *passed]


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_one_that_came_last_waits_again_for_those_that_it_had_passed(
    storage: Storage, lease: PodLease, how: str
) -> None:
    line = await in_line(storage, 3)
    [head] = await claim_due(storage, lease)
    await storage.jobs.cancel(only(line[1]))
    await tell(storage)
    await storage.jobs.requeue(only(line[1]))
    await getattr(storage.jobs, how)(only(line[2]))
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [line[1]]


async def test_one_that_came_last_waits_through_those_that_it_had_passed_and_that_ended_since(
    storage: Storage, lease: PodLease
) -> None:
    _, second, third, fourth = await in_line(storage, 4)
    [head] = await claim_due(storage, lease)
    for job_id in (second, third, fourth):
        await storage.jobs.cancel(only(job_id))
        await tell(storage)
        if job_id == second:
            await storage.jobs.requeue(only(second))
    for job_id in (fourth, third):
        await storage.jobs.requeue(only(job_id))
    await storage.jobs.cancel(only(second, fourth))
    news = [each for each in await storage.jobs.handovers(100) if each.child_id == third]
    await storage.jobs.deliver([delivery(each) for each in news])
    assert await claim_due(storage, lease) == []
    await finish(storage, head, done())
    assert await order_of(storage, lease) == [third]


async def test_the_next_one_is_not_released_beside_a_requeued_head(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 2)
    assert await run_one(storage, lease, dead()) == line[0]
    await tell(storage)
    await storage.jobs.requeue(only(line[0]))
    [running] = await claim_due(storage, lease)
    refused = await storage.jobs.release_held(only(line[1]))
    assert refused.refused == {line[1]: Refusal.WAITING}
    assert await edges_of(storage, line[1]) == {line[0]: EdgeState.OPEN}
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [line[1]]


async def test_a_requeued_head_that_was_passed_by_a_release_comes_last(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 3)
    assert await run_one(storage, lease, dead()) == line[0]
    await tell(storage)
    await storage.jobs.release_held(only(line[1]))
    [running] = await claim_due(storage, lease)
    await storage.jobs.requeue(only(line[0]))
    assert await claim_due(storage, lease) == []
    await finish(storage, running, done())
    assert await order_of(storage, lease) == [line[2], line[0]]


async def test_who_comes_after_a_deleted_last_job_waits_for_the_last_of_those_before(
    storage: Storage, lease: PodLease
) -> None:
    head, passing = await in_line(storage, 2, "stop")
    assert await run_one(storage, lease, dead()) == head
    await tell(storage)
    await storage.jobs.release_held(only(passing))
    [running] = await claim_due(storage, lease)
    await storage.jobs.requeue(only(head))  # comes last, so its id is before that of the job ahead
    [last] = await in_line(storage, 1, "stop")
    await storage.jobs.cancel(only(head))
    await tell(storage)
    await storage.jobs.requeue(only(last))
    edges = await edges_of(storage, last)
    assert {each for each, state in edges.items() if state in WAITING} == {head, passing}

    await storage.jobs.delete(only(last))

    [new] = await in_line(storage, 1, "stop")
    await finish(storage, running, done())
    assert await claim_due(storage, lease) == [], "the line has stopped at the cancelled job"
    await storage.jobs.requeue(only(head))
    assert await order_of(storage, lease) == [head, new]


async def test_a_cancelled_job_between_two_that_come_back_makes_no_circle(
    storage: Storage, lease: PodLease
) -> None:
    line = await in_line(storage, 4, "stop")
    for job in line:
        await storage.jobs.cancel(only(job))
    await storage.jobs.requeue(only(line[2]))
    await storage.jobs.requeue(only(line[0]))
    await storage.jobs.requeue(only(line[3]))
    ran = await order_of(storage, lease)
    assert sorted(ran) == sorted([line[0], line[2], line[3]])


async def test_a_head_that_the_next_one_names_as_parent_keeps_its_place(
    storage: Storage, lease: PodLease
) -> None:
    [first] = await in_line(storage, 1)
    second = await enqueue_one(storage, after=(After(first, "hold"),), sequence=Line("k"))
    assert await run_one(storage, lease, dead()) == first
    await tell(storage)
    await storage.jobs.requeue(only(first))
    assert await order_of(storage, lease) == [first, second]


async def test_a_job_that_is_tried_again_keeps_its_place(storage: Storage, lease: PodLease) -> None:
    other = await enqueue_one(storage, sequence=Line("other"))
    line = await in_line(storage, 2)
    await storage.jobs.cancel(only(other))
    await storage.jobs.requeue(JobFilter(ids=(other, *line)))
    [first, second] = await claim_due(storage, lease)
    assert {first.claim.job_id, second.claim.job_id} == {other, line[0]}
    assert (await get_job(storage, line[1])).status is JobStatus.BLOCKED


async def test_jobs_of_no_sequence_are_as_before(storage: Storage, lease: PodLease) -> None:
    job = new_job()
    await storage.jobs.enqueue([job])
    assert await run_one(storage, lease, dead()) == job.id
    await storage.jobs.requeue(only(job.id))
    assert await storage.jobs.parents([job.id]) == {}
    assert await order_of(storage, lease) == [job.id]


async def test_one_that_keeps_its_place_waits_for_who_passed_it_and_came_back_first(
    storage: Storage, lease: PodLease
) -> None:
    first, second = await in_line(storage, 2)
    last = new_job(sequence=Line("k"), after=(After(first, "hold"),))
    await storage.jobs.enqueue([last])
    await storage.jobs.cancel(only(first, second))
    await storage.jobs.requeue(only(second))  # passes the first one, which is cancelled
    await storage.jobs.requeue(only(first))  # stays, as the last one waits for both
    assert await order_of(storage, lease) == [second, first, last.id]


async def test_a_job_of_another_sequence_that_waits_keeps_no_place(
    storage: Storage, lease: PodLease
) -> None:
    passed, after_it = await in_line(storage, 2, "skip")
    await enqueue_one(storage, sequence=Line("other"), after=(After(passed, "hold"),))
    assert await run_one(storage, lease, dead()) == passed
    [running] = await claim_due(storage, lease)
    assert running.claim.job_id == after_it
    assert (await storage.jobs.requeue(only(passed))).changed == (passed,)
    assert await claim_due(storage, lease) == []


async def test_a_job_that_is_waited_for_by_way_of_another_sequence_keeps_its_place(
    storage: Storage, lease: PodLease
) -> None:
    [head] = await in_line(storage, 1, "skip")
    between = new_job(sequence=Line("other"), after=(After(head, "hold"),))
    behind = new_job(sequence=Line("k", "skip"), after=(After(between.id, "hold"),))
    await storage.jobs.enqueue([between, behind])
    assert await run_one(storage, lease, dead()) == head
    await tell(storage)
    assert (await storage.jobs.requeue(only(head))).changed == (head,)
    assert await order_of(storage, lease) == [head, between.id, behind.id]


async def test_a_refused_restore_keeps_the_end_of_a_parent_on_its_way(
    storage: Storage, lease: PodLease
) -> None:
    head, moved, behind = await in_line(storage, 3, "skip")
    await storage.jobs.cancel(only(moved))
    await tell(storage)
    assert await run_one(storage, lease, done()) == head
    outcome = await storage.jobs.restore(only(moved))
    assert outcome.refused == {moved: Refusal.CHILDREN_KNOW}
    assert {each.child_id for each in await storage.jobs.handovers(10)} == {moved, behind}


@pytest.mark.parametrize(
    ("rule", "coming", "is_named_later"),
    [
        ("hold", (0, 1), False),
        ("hold", (0, 1), True),
        ("hold", (0, 2, 1), False),
        ("cancel", (2, 0, 1), False),
    ],
)
async def test_a_named_parent_further_ahead_keeps_its_place(
    storage: Storage, lease: PodLease, rule: str, coming: tuple[int, ...], is_named_later: bool
) -> None:
    line = await in_line(storage, 2)
    named = After(line[0], rule)  # type: ignore[arg-type]
    last = new_job(sequence=Line("k"), after=() if is_named_later else (named,))
    await storage.jobs.enqueue([last])
    if is_named_later:
        await storage.jobs.await_also(last.id, [named])
    line.append(last.id)
    await storage.jobs.cancel(only(line[0]))
    await tell(storage)
    assert await run_one(storage, lease, dead()) == line[1]
    for each in coming:
        await storage.jobs.requeue(only(line[each]))
        await tell(storage)
    assert len(await order_of(storage, lease)) >= 2  # The last one may have been cancelled.


async def test_a_job_that_is_released_behind_an_ended_one_waits_for_one_that_came_back(
    storage: Storage, lease: PodLease
) -> None:
    all_jobs = JobFilter(queues=(QUEUE,))
    first, second = await in_line(storage, 2)
    after = (After(second, "cancel"), After(first, "hold"))
    third = await enqueue_one(storage, sequence=Line("k"), after=after)
    fourth = await enqueue_one(storage, sequence=Line("k"), after=(After(third, "cancel"),))
    await storage.jobs.cancel(only(fourth, third, first))
    await storage.jobs.delete(only(second))
    await storage.jobs.requeue(only(fourth))
    await tell(storage)
    await storage.jobs.requeue(all_jobs, limit=10)
    await tell(storage)
    await storage.jobs.release_held(all_jobs, limit=10)
    assert await order_of(storage, lease) == [first, fourth]
