"""Bulk operations: bounded batches that end, and the filter that says what is meant."""

from collections.abc import Sequence
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, Cause, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    MICROSECOND,
    SECOND,
    claim,
    counters,
    dead,
    done,
    enqueue_one,
    get_job,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

VERBS = ["cancel", "delete", "requeue", "restore", "run_now"]


async def through(
    storage: Storage, verb: str, which: JobFilter, limit: int
) -> tuple[list[JobId], dict[JobId, Refusal], int]:
    """Everything the verb changed and refused, and how many calls that took."""
    changed: list[JobId] = []
    refused: dict[JobId, Refusal] = {}
    cursor, calls = None, 0
    while calls < 100:
        outcome = await getattr(storage.jobs, verb)(which, cursor=cursor, limit=limit)
        calls += 1
        visited = [*outcome.changed, *outcome.requested, *outcome.refused]
        assert len(visited) <= limit
        changed += outcome.changed
        refused |= outcome.refused
        cursor = outcome.cursor
        if cursor is None:
            return changed, refused, calls
    raise AssertionError("the bulk operation does not end")


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_matching_jobs_are_visited_in_id_order_each_once(
    storage: Storage, limit: int
) -> None:
    requests = [new_job(priority=-number) for number in range(7)]
    await storage.jobs.enqueue(requests[::-1])
    changed, refused, calls = await through(storage, "cancel", JobFilter(), limit)
    assert changed == [request.id for request in requests]
    assert refused == {}
    assert calls <= 7 // limit + 1
    assert (await counters(storage))["cancelled"] == 7


@pytest.mark.parametrize(
    ("verb", "status", "reason"),
    [
        ("cancel", JobStatus.DONE, Refusal.FINISHED),
        ("delete", JobStatus.IN_PROGRESS, Refusal.RUNNING),
        ("requeue", JobStatus.PENDING, Refusal.WAITING),
        ("run_now", JobStatus.CANCELLED, Refusal.FINISHED),
    ],
)
@pytest.mark.parametrize("by", ["filter", "ids"])
async def test_it_ends_although_every_visited_job_is_refused(
    storage: Storage, lease: PodLease, verb: str, status: JobStatus, reason: Refusal, by: str
) -> None:
    ids = [await a_job(storage, lease, status) for _ in range(5)]
    which = only(*ids) if by == "ids" else JobFilter()
    changed, refused, _ = await through(storage, verb, which, 2)
    assert (changed, refused) == ([], dict.fromkeys(ids, reason))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("limit", [2, 100])
async def test_good_refused_and_missing_ids_of_one_operation(
    storage: Storage, lease: PodLease, verb: str, limit: int
) -> None:
    ended = {"requeue": JobStatus.DEAD, "restore": JobStatus.CANCELLED}
    good_status = ended.get(verb, JobStatus.PENDING)
    bad = {
        "cancel": JobStatus.DONE,
        "delete": JobStatus.IN_PROGRESS,
        "requeue": JobStatus.DONE,
        "restore": JobStatus.DONE,
        "run_now": JobStatus.DONE,
    }
    refused_jobs = [await a_job(storage, lease, bad[verb]) for _ in range(2)]
    missing = [new_job_id() for _ in range(3)]
    good = [await a_job(storage, lease, good_status) for _ in range(3)]
    ids = [missing[0], *good, *refused_jobs, *missing[1:]]
    changed, refused, _ = await through(storage, verb, only(*ids), limit)
    assert sorted(changed) == good
    assert {j for j, reason in refused.items() if reason is Refusal.NOT_FOUND} == set(missing)
    assert set(refused) == {*missing, *refused_jobs}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_filter_that_matches_nothing_changes_nothing(storage: Storage, verb: str) -> None:
    job_id = await enqueue_one(storage)
    before = await get_job(storage, job_id)
    outcome = await getattr(storage.jobs, verb)(JobFilter(queues=("elsewhere",)))
    assert (outcome.changed, outcome.requested, outcome.refused, outcome.cursor) == (
        (),
        (),
        {},
        None,
    )
    assert await get_job(storage, job_id) == before


@pytest.mark.parametrize("verb", VERBS)
async def test_a_made_up_cursor_is_refused_by_name(storage: Storage, verb: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await getattr(storage.jobs, verb)(JobFilter(), cursor="' OR 1=1 --")
    assert refused.value.field == "cursor"


async def test_cancel_all_asks_running_jobs_and_leaves_ended_ones(
    storage: Storage, lease: PodLease
) -> None:
    ended = await a_job(storage, lease, JobStatus.DONE)
    running = await a_job(storage, lease, JobStatus.IN_PROGRESS)
    waiting = await a_job(storage, lease, JobStatus.PENDING)
    outcome = await storage.jobs.cancel(JobFilter())
    assert (outcome.changed, outcome.requested) == ((waiting,), (running,))
    assert outcome.refused == {ended: Refusal.FINISHED}


async def test_jobs_that_come_meanwhile_do_not_keep_a_bulk_operation_going(
    storage: Storage,
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(6)])
    cursor, calls = None, 0
    while calls == 0 or cursor is not None:
        outcome = await storage.jobs.cancel(
            JobFilter(statuses=(JobStatus.PENDING,)), cursor=cursor, limit=2
        )
        cursor, calls = outcome.cursor, calls + 1
        assert calls < 10
        if calls < 3:
            await enqueue_one(storage)


async def test_five_hundred_jobs_in_one_batch(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(501)])
    outcome = await storage.jobs.cancel(JobFilter())
    assert (len(outcome.changed), outcome.cursor is None) == (500, False)
    outcome = await storage.jobs.cancel(JobFilter(), cursor=outcome.cursor)
    assert (len(outcome.changed), outcome.cursor) == (1, None)
    assert await claim(storage, lease) == []


async def matching(storage: Storage, **parts: Any) -> list[JobId]:
    page = await storage.jobs.list(JobFilter(**parts))
    return sorted(job.id for job in page.jobs)


async def test_each_part_of_a_filter_must_match(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    start = clock.now()
    plain = await enqueue_one(storage)
    clock.advance(1)
    rich = await enqueue_one(
        storage,
        queue="gh",
        kind="gh.sync",
        tags=("red", "blue"),
        unique=Unique("k"),
        schedule="nightly",
    )
    clock.advance(1)
    ended = await enqueue_one(storage, priority=-1)
    await run_one(storage, lease, dead(cause=Cause.TIMED_OUT))
    every = sorted([plain, rich, ended])

    expected: Sequence[tuple[dict[str, Any], list[JobId]]] = [
        ({}, every),
        ({"ids": (plain, ended, new_job_id())}, sorted([plain, ended])),
        ({"queues": ("gh",)}, [rich]),
        ({"queues": ("gh", "default")}, every),
        ({"kinds": ("gh.sync", "nothing")}, [rich]),
        ({"statuses": (JobStatus.DEAD,)}, [ended]),
        ({"statuses": (JobStatus.DEAD, JobStatus.PENDING)}, every),
        ({"causes": (Cause.TIMED_OUT,)}, [ended]),
        ({"tag": "blue"}, [rich]),
        ({"tag": "red"}, [rich]),
        ({"tag": "re"}, []),
        ({"unique_key": "k"}, [rich]),
        ({"unique_key": "K"}, []),
        ({"schedule": "nightly"}, [rich]),
        ({"enqueued_before": start + SECOND}, [plain]),
        ({"enqueued_before": start + SECOND + MICROSECOND}, sorted([plain, rich])),
        ({"enqueued_after": start + SECOND}, sorted([rich, ended])),
        ({"enqueued_after": start + SECOND + MICROSECOND}, [ended]),
        ({"enqueued_after": start, "enqueued_before": start + 2 * SECOND}, sorted([plain, rich])),
        ({"queues": ("gh",), "statuses": (JobStatus.DEAD,)}, []),
        ({"queues": ("gh",), "tag": "red", "unique_key": "k", "ids": (rich,)}, [rich]),
    ]
    for parts, ids in expected:
        assert await matching(storage, **parts) == ids, parts


async def test_a_key_is_found_after_its_job_has_ended(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage, unique=Unique("k"))
    await run_one(storage, lease, done())
    assert (await get_job(storage, job_id)).unique_key == "k"
    assert await matching(storage, unique_key="k") == [job_id]


async def test_a_bulk_operation_touches_only_what_its_filter_means(storage: Storage) -> None:
    lease = await register(storage, queues=["a", "b"])
    mine = [await a_job(storage, lease, JobStatus.DEAD, queue="a") for _ in range(3)]
    other = await a_job(storage, lease, JobStatus.DEAD, queue="b")
    scheduled = await enqueue_one(storage, queue="a", delay=DAY)
    outcome = await storage.jobs.requeue(JobFilter(queues=("a",), statuses=(JobStatus.DEAD,)))
    assert outcome.changed == tuple(mine)
    assert (await get_job(storage, other)).status is JobStatus.DEAD
    assert (await get_job(storage, scheduled)).cause is Cause.ENQUEUED


@pytest.mark.parametrize("tag", ['a"b', 'a["b', '"b"', 'b"', "ab", 'a\\"b', "b\\"])
async def test_a_tag_inside_another_tag_is_not_meant(storage: Storage, tag: str) -> None:
    job_id = await enqueue_one(storage, tags=("x", tag))
    assert (await storage.jobs.delete(JobFilter(tag="b"))).changed == ()
    assert (await storage.jobs.list(JobFilter(tag="b"))).jobs == ()
    assert (await storage.jobs.delete(JobFilter(tag=tag))).changed == (job_id,)


async def test_a_deleted_child_may_be_stored_again(storage: Storage, lease: PodLease) -> None:
    parent = await enqueue_one(storage)
    child = new_job(after=(After(parent),))
    await storage.jobs.enqueue([child])
    await run_one(storage, lease, done())
    await storage.jobs.deliver(
        [Delivery(news, "settle") for news in await storage.jobs.handovers(10)]
    )
    await run_one(storage, lease, done())
    assert (await storage.jobs.delete(only(child.id))).changed == (child.id,)
    await storage.jobs.enqueue([child])
    assert (await get_job(storage, child.id)).waits_for == (parent,)


@pytest.mark.parametrize(
    "which",
    [
        JobFilter(),
        JobFilter(queues=("b", "a")),
        JobFilter(statuses=(JobStatus.PENDING, JobStatus.DEAD)),
        JobFilter(queues=("a", "b"), statuses=(JobStatus.DEAD, JobStatus.PENDING)),
        JobFilter(queues=("a", "b", "a"), kinds=(KIND,)),
    ],
)
async def test_several_queues_and_statuses_are_visited_as_one_list(
    storage: Storage, which: JobFilter
) -> None:
    lease = await register(storage, queues=["a", "b"])
    ids = [await enqueue_one(storage, queue="ab"[number % 2]) for number in range(8)]
    await run_one(storage, lease, dead(), queue="a")
    await run_one(storage, lease, dead(), queue="b")
    seen: list[JobId] = []
    cursor = None
    for _ in range(4):
        page = await storage.jobs.list(which, cursor=cursor, limit=2)
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
    assert (seen, cursor) == (ids[::-1], None)
    assert (await through(storage, "delete", which, 3))[0] == ids


async def test_a_bulk_call_is_bounded(storage: Storage) -> None:
    with pytest.raises(InvalidInput):
        await storage.jobs.delete(JobFilter(), limit=1_001)


@pytest.mark.parametrize("verb", ["cancel", "delete", "requeue", "run_now"])
async def test_an_empty_list_of_ids_means_no_job(storage: Storage, verb: str) -> None:
    await enqueue_one(storage)

    outcome = await getattr(storage.jobs, verb)(JobFilter(ids=()))

    assert outcome == BulkOutcome((), (), {}, None)
    assert (await storage.jobs.list(JobFilter(ids=()))).jobs == ()
    assert len((await storage.jobs.list(JobFilter())).jobs) == 1
