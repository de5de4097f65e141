"""get, list, counts."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    enqueue_one,
    error,
    failed,
    get_job,
    held,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio


async def test_get_leaves_out_what_does_not_exist(storage: Storage) -> None:
    job_id = await enqueue_one(storage)
    missing = new_job_id()
    assert list(await storage.jobs.get([missing, job_id, job_id])) == [job_id]
    assert await storage.jobs.get([]) == {}


async def test_a_list_shows_the_newest_ids_first(storage: Storage) -> None:
    requests = [new_job(priority=number) for number in range(5)]
    await storage.jobs.enqueue(requests[::-1])
    page = await storage.jobs.list(JobFilter())
    assert [job.id for job in page.jobs] == [request.id for request in requests[::-1]]
    assert page.cursor is None


async def test_a_line_of_the_list_says_how_a_job_stands(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, tags=("x",), priority=3)
    for message in ("first", "second"):
        await run_one(storage, lease, failed(error=error(message)))
    claimed = await claim_one(storage, lease)
    await storage.jobs.heartbeat(lease, [held(claimed, "w")], 15 * SECOND)
    [line] = (await storage.jobs.list(JobFilter())).jobs
    job = await get_job(storage, job_id)
    for field in (
        "id",
        "queue",
        "kind",
        "status",
        "cause",
        "priority",
        "attempt",
        "max_attempts",
        "enqueued_at",
        "due_at",
        "finished_at",
        "hold",
        "host_id",
        "started_at",
        "tags",
    ):
        assert getattr(line, field) == getattr(job, field), field
    assert "ValueError" in line.last_error
    assert "second" in line.last_error
    assert "first" not in line.last_error


async def test_a_job_without_errors_has_no_last_error(storage: Storage) -> None:
    await enqueue_one(storage)
    [line] = (await storage.jobs.list(JobFilter())).jobs
    assert line.last_error == ""


@pytest.mark.parametrize("limit", [1, 3, 4, 12, 100])
async def test_pages_show_every_job_once(storage: Storage, limit: int) -> None:
    requests = [new_job() for _ in range(12)]
    await storage.jobs.enqueue(requests)
    seen: list[JobId] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = await storage.jobs.list(JobFilter(), cursor=cursor, limit=limit)
        assert len(page.jobs) <= limit
        seen += [job.id for job in page.jobs]
        cursor, pages = page.cursor, pages + 1
        assert pages <= 13
    assert seen == [request.id for request in requests[::-1]]


async def test_pages_neither_skip_nor_repeat_what_stays(storage: Storage) -> None:
    requests = [new_job() for _ in range(9)]
    await storage.jobs.enqueue(requests)
    first = await storage.jobs.list(JobFilter(), limit=3)
    await storage.jobs.delete(only(requests[8].id, requests[6].id, requests[4].id))
    await enqueue_one(storage)
    assert first.cursor is not None
    second = await storage.jobs.list(JobFilter(), cursor=first.cursor, limit=3)
    assert [job.id for job in second.jobs] == [requests[n].id for n in (5, 3, 2)]
    third = await storage.jobs.list(JobFilter(), cursor=second.cursor, limit=3)
    assert [job.id for job in third.jobs] == [requests[n].id for n in (1, 0)]


async def test_pages_of_a_filter_hold_only_what_matches(storage: Storage) -> None:
    requests = [new_job(tags=("even",) if number % 2 == 0 else ()) for number in range(10)]
    await storage.jobs.enqueue(requests)
    seen: list[JobId] = []
    page = await storage.jobs.list(JobFilter(tag="even"), limit=2)
    seen += [job.id for job in page.jobs]
    while page.cursor is not None:
        page = await storage.jobs.list(JobFilter(tag="even"), cursor=page.cursor, limit=2)
        seen += [job.id for job in page.jobs]
    assert seen == [requests[n].id for n in (8, 6, 4, 2, 0)]


@pytest.mark.parametrize("cursor", ["", "nonsense", "' OR 1=1 --", "\u2603", "0" * 500])
async def test_a_cursor_it_never_gave_is_refused_by_name(storage: Storage, cursor: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await storage.jobs.list(JobFilter(), cursor=cursor)
    assert refused.value.field == "cursor"


async def test_counts_tell_a_queue_by_status(storage: Storage, lease: PodLease) -> None:
    for times, status in enumerate(JobStatus, start=1):
        for _ in range(times):
            await a_job(storage, lease, status)
    counts = (await storage.jobs.counts())[QUEUE]
    expected = {str(status): times for times, status in enumerate(JobStatus, start=1)}
    expected["pending"] += 1  # the parent of the blocked one
    assert {name: count for name, count in counts.by_status.items() if count} == expected


async def test_counts_know_every_queue_or_those_asked_for(storage: Storage) -> None:
    await register(storage, queues=["idle", "busy"])
    await enqueue_one(storage, queue="busy")
    assert set(await storage.jobs.counts()) == {"idle", "busy"}
    assert set(await storage.jobs.counts(["busy"])) == {"busy"}
    idle = (await storage.jobs.counts(["idle"]))["idle"]
    assert (idle.due, idle.held, idle.running, idle.oldest_due_for) == (0, 0, 0, None)
    assert sum(idle.by_status.values()) == 0


async def test_counts_tell_what_could_be_claimed_now(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage, delay=5 * SECOND)
    await enqueue_one(storage, delay=DAY)
    await enqueue_one(storage, kind="nobody.knows")
    await enqueue_one(storage, expires_at=clock.now() + SECOND)
    await claim(storage, lease, kinds=["no.such"])
    clock.advance(5)
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.due, counts.oldest_due_for) == (1, 0 * SECOND)
    clock.advance(7)
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.due, counts.held, counts.oldest_due_for) == (1, 1, 7 * SECOND)


async def test_the_oldest_due_job_is_of_any_priority_and_never_one_that_expired(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage, priority=2, expires_at=clock.now() + SECOND)
    clock.advance(1)
    await enqueue_one(storage, priority=9)
    clock.advance(2)
    await enqueue_one(storage, priority=0, expires_at=clock.now() + SECOND)
    await enqueue_one(storage, priority=0)
    await enqueue_one(storage, priority=0, delay=DAY)
    clock.advance(4)
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.due, counts.oldest_due_for) == (2, 6 * SECOND)
    await storage.jobs.enqueue([new_job(queue="other", expires_at=clock.now() + SECOND)])
    clock.advance(2)
    other = (await storage.jobs.counts())["other"]
    assert (other.due, other.oldest_due_for) == (0, None)


async def test_ended_jobs_are_counted_up_to_a_bound(storage: Storage, lease: PodLease) -> None:
    for _ in range(3):
        await a_job(storage, lease, JobStatus.DONE)
        await a_job(storage, lease, JobStatus.PENDING)
    await a_job(storage, lease, JobStatus.DEAD)
    exact = await storage.jobs.counts()
    assert exact[QUEUE].more == ()
    for bound in (3, 4):
        assert await storage.jobs.counts(ended_at_most=bound) == exact
    counts = (await storage.jobs.counts([QUEUE], ended_at_most=2))[QUEUE]
    # A store that knows the number tells the number.
    told = (counts.by_status["done"], counts.more)
    assert told in [(2, ("done",)), (3, ())]
    assert {**counts.by_status, "done": 3} == exact[QUEUE].by_status
    for bad in (0, -1, 1.5, "2"):
        with pytest.raises(InvalidInput) as refused:
            await storage.jobs.counts(ended_at_most=bad)  # type: ignore[arg-type]
        assert refused.value.field == "ended_at_most"


async def test_counts_tell_running_from_claimed(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(3)])
    claimed = await claim(storage, lease, limit=3, ahead=True)
    await storage.jobs.heartbeat(lease, [held(claimed[0], "w"), held(claimed[1])], 15 * SECOND)
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.by_status["in_progress"], counts.running) == (3, 1)


async def test_counts_of_due_jobs_include_retries(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    await run_one(storage, lease, failed(3 * SECOND))
    assert (await storage.jobs.counts())[QUEUE].due == 0
    clock.advance(4)
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.due, counts.oldest_due_for) == (1, SECOND)
