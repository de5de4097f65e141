"""JobStore.enqueue, but for keys and parents."""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock, to_us
from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Cause, JobStatus, NewJob, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueSettings
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    counters,
    done,
    enqueue_one,
    get_job,
    new_job,
    only,
    run_one,
)

pytestmark = pytest.mark.anyio


async def test_a_stored_job_reads_back_whole(storage: Storage, clock: ManualClock) -> None:
    request = new_job(
        queue="gh",
        kind="gh.sync",
        payload='{"n": 1}',
        priority=-7,
        max_attempts=9,
        unique=Unique("k1"),
        timeout=timedelta(seconds=1.5),
        tags=("b", "a"),
        metadata='{"owner":"x"}',
        trace='{"traceparent":"00-1"}',
        expires_at=clock.now() + DAY,
        keep_result=False,
        schedule="nightly",
    )
    [outcome] = await storage.jobs.enqueue([request])
    assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
    job = await get_job(storage, request.id)
    assert (job.id, job.queue, job.kind, job.payload) == (request.id, "gh", "gh.sync", '{"n": 1}')
    assert (job.status, job.cause) == (JobStatus.PENDING, Cause.ENQUEUED)
    assert (job.priority, job.max_attempts, job.unique_key) == (-7, 9, "k1")
    assert (job.timeout, job.tags) == (timedelta(seconds=1.5), ("b", "a"))
    assert (dict(job.metadata), job.trace) == ({"owner": "x"}, '{"traceparent":"00-1"}')
    assert (job.expires_at, job.keep_result) == (clock.now() + DAY, False)
    assert (job.schedule, job.hold, job.waits_for) == ("nightly", None, ())
    assert (job.enqueued_at, job.due_at) == (clock.now(), clock.now())


async def test_a_new_job_has_no_past(storage: Storage) -> None:
    job = await get_job(storage, await enqueue_one(storage, max_attempts=None))
    assert (job.attempt, job.max_attempts, job.token) == (0, None, to_us(job.enqueued_at))
    assert (job.crashes, job.snoozes, job.cancel_requested) == (0, 0, False)
    assert (job.claimed_at, job.started_at, job.heartbeat_at) == (None, None, None)
    assert (job.finished_at, job.expires_at, job.timeout) == (None, None, None)
    assert (job.host_id, job.worker_id, job.unique_key) == ("", "", None)
    assert (job.result, job.errors) == (None, ())


async def test_outcomes_come_in_the_order_of_the_requests(storage: Storage) -> None:
    requests = [new_job(queue=f"q{number % 3}") for number in range(40)][::-1]
    outcomes = await storage.jobs.enqueue(requests)
    assert [outcome.job_id for outcome in outcomes] == [request.id for request in requests]


async def test_no_requests_are_no_error(storage: Storage) -> None:
    assert await storage.jobs.enqueue([]) == []


@pytest.mark.parametrize("count", [2, 25, 26, 60])
async def test_each_job_of_a_batch_has_its_own_values(storage: Storage, count: int) -> None:
    requests = [
        new_job(payload=f'{{"n":{n}}}', priority=n, tags=(f"t{n}",), keep_result=n % 2 == 0)
        for n in range(count)
    ]
    await storage.jobs.enqueue(requests)
    stored = await storage.jobs.get([request.id for request in requests])
    assert [
        (job.payload, job.priority, job.tags, job.keep_result)
        for request in requests
        if (job := stored.get(request.id))
    ] == [(one.payload, one.priority, one.tags, one.keep_result) for one in requests]


async def test_a_batch_of_a_thousand_is_stored_and_counted_exactly(storage: Storage) -> None:
    requests = [new_job() for _ in range(1_000)]
    await storage.jobs.enqueue(requests)
    found = await storage.jobs.get([request.id for request in requests])
    assert len(found) == 1_000
    assert await counters(storage) == {"enqueued": 1_000}


async def test_a_delay_counts_from_the_stores_clock_to_the_microsecond(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, delay=10 * SECOND)
    assert (await get_job(storage, job_id)).due_at == clock.now() + 10 * SECOND
    clock.advance(10 * SECOND - MICROSECOND)
    assert await claim(storage, lease) == []
    clock.advance(MICROSECOND)
    assert [c.claim.job_id for c in await claim(storage, lease)] == [job_id]


async def test_a_job_with_run_at_is_due_from_that_instant_on(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    run_at = clock.now() + timedelta(seconds=3, microseconds=7)
    job_id = await enqueue_one(storage, run_at=run_at)
    job = await get_job(storage, job_id)
    assert (job.status, job.due_at) == (JobStatus.PENDING, run_at)
    clock.advance(run_at - clock.now() - MICROSECOND)
    assert await claim(storage, lease) == []
    clock.advance(MICROSECOND)
    assert len(await claim(storage, lease)) == 1


async def test_a_run_at_in_the_past_is_kept_and_due(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, run_at=clock.now() - DAY)
    assert (await get_job(storage, job_id)).due_at == clock.now() - DAY
    assert len(await claim(storage, lease)) == 1


async def test_an_unknown_queue_is_created_with_default_settings(storage: Storage) -> None:
    await enqueue_one(storage, queue="fresh")
    [state] = [state for state in await storage.config.queues() if state.name == "fresh"]
    assert state.settings == QueueSettings()
    assert (state.paused, state.overridden) == (False, frozenset())


async def test_a_known_queue_keeps_its_settings(storage: Storage) -> None:
    await storage.config.ensure_queue("gh", QueueSettings(max_workers=7))
    await enqueue_one(storage, queue="gh")
    [state] = await storage.config.queues()
    assert state.settings.max_workers == 7


async def test_a_repeat_under_the_same_id_stores_nothing_and_is_no_duplicate(
    storage: Storage,
) -> None:
    request = new_job(fingerprint="f1")
    first = await storage.jobs.enqueue([request])
    assert await storage.jobs.enqueue([request]) == first
    assert await counters(storage) == {"enqueued": 1}
    assert (await storage.jobs.counts())[QUEUE].by_status.get("pending") == 1


async def test_one_id_twice_in_one_call_is_a_repeat(storage: Storage) -> None:
    request = new_job()
    outcomes = await storage.jobs.enqueue([request, request])
    assert [(o.job_id, o.deduplicated) for o in outcomes] == [(request.id, False)] * 2
    assert await counters(storage) == {"enqueued": 1}


async def test_a_repeat_of_a_job_that_has_ended_does_not_run_it_again(
    storage: Storage, lease: PodLease
) -> None:
    request = new_job()
    await storage.jobs.enqueue([request])
    await run_one(storage, lease, done("1"))
    [outcome] = await storage.jobs.enqueue([request])
    assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
    job = await get_job(storage, request.id)
    assert (job.status, job.result) == (JobStatus.DONE, "1")


@pytest.mark.parametrize("mode", ["keep", "error"])
async def test_the_id_is_looked_at_before_the_unique_key(storage: Storage, mode: Any) -> None:
    request = new_job(unique=Unique("k", mode))
    await storage.jobs.enqueue([request])
    [outcome] = await storage.jobs.enqueue([request])
    assert (outcome.job_id, outcome.deduplicated) == (request.id, False)


@pytest.mark.parametrize("mode", ["keep", "error"])
async def test_a_repeat_names_its_own_job_although_another_holds_the_key_by_now(
    storage: Storage, lease: PodLease, mode: Any
) -> None:
    request = new_job(unique=Unique("k", mode))
    await storage.jobs.enqueue([request])
    await run_one(storage, lease, done())
    holder = await enqueue_one(storage, unique=Unique("k"))
    [outcome] = await storage.jobs.enqueue([request])
    assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
    assert (await get_job(storage, holder)).status is JobStatus.PENDING


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": "other"}, {"fingerprint": "other", "payload": '{"n":2}'}],
)
async def test_an_id_stored_with_another_fingerprint_is_a_conflict(
    storage: Storage, change: dict[str, Any]
) -> None:
    request = new_job(fingerprint="f1")
    await storage.jobs.enqueue([request])
    with pytest.raises(Conflict, match=request.id):
        await storage.jobs.enqueue([new_job(id=request.id, **change)])
    assert (await get_job(storage, request.id)).payload == "{}"


@pytest.mark.parametrize("fingerprints", [("", ""), ("f1", ""), ("", "f1")])
@pytest.mark.parametrize("change", [{"payload": '{"n":2}'}, {"kind": "k2"}, {"queue": "q2"}])
async def test_without_both_fingerprints_other_content_is_a_conflict(
    storage: Storage, change: dict[str, Any], fingerprints: tuple[str, str]
) -> None:
    request = new_job(fingerprint=fingerprints[0])
    await storage.jobs.enqueue([request])
    with pytest.raises(Conflict, match=request.id):
        await storage.jobs.enqueue([new_job(id=request.id, fingerprint=fingerprints[1], **change)])


@pytest.mark.parametrize("fingerprints", [("f1", ""), ("", "f1"), ("f1", "f1")])
async def test_the_same_content_is_a_repeat_whatever_else_differs(
    storage: Storage, fingerprints: tuple[str, str]
) -> None:
    request = new_job(fingerprint=fingerprints[0])
    await storage.jobs.enqueue([request])
    again = new_job(id=request.id, fingerprint=fingerprints[1], priority=5)
    [outcome] = await storage.jobs.enqueue([again])
    assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
    assert (await get_job(storage, request.id)).priority == 0


async def test_equal_fingerprints_are_trusted(storage: Storage) -> None:
    request = new_job(fingerprint="f1")
    await storage.jobs.enqueue([request])
    again = new_job(id=request.id, fingerprint="f1", payload='{"spelled": "otherwise"}')
    [outcome] = await storage.jobs.enqueue([again])
    assert outcome.job_id == request.id


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_conflict_stores_nothing_of_its_call(storage: Storage, position: int) -> None:
    stored = new_job()
    await storage.jobs.enqueue([stored])
    batch = [new_job(), new_job()]
    batch.insert(position, new_job(id=stored.id, payload='{"n":2}'))
    with pytest.raises(Conflict):
        await storage.jobs.enqueue(batch)
    page = await storage.jobs.list(JobFilter())
    assert [job.id for job in page.jobs] == [stored.id]
    assert await counters(storage) == {"enqueued": 1}


async def test_a_deleted_id_can_be_used_again(storage: Storage) -> None:
    request = new_job()
    await storage.jobs.enqueue([request])
    await storage.jobs.delete(only(request.id))
    again = NewJob(id=request.id, queue="q2", kind="k2", payload="{}")
    await storage.jobs.enqueue([again])
    assert (await get_job(storage, request.id)).queue == "q2"


async def test_a_foreign_connection_is_refused_by_name_and_stores_nothing(
    storage: Storage,
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await storage.jobs.enqueue([new_job()], connection=object())
    assert refused.value.field == "connection"
    assert (await storage.jobs.list(JobFilter())).jobs == ()
