"""edit: what changes of a waiting job, what stays, and which edits are refused."""

from datetime import timedelta
from typing import Any

import anyio
import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.edits import CONTENT, JobContent, content_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Cause, Hold, Job, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    claim,
    claim_one,
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
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

WAITING = (JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.FAILED)


async def edit(storage: Storage, job_id: JobId, **changes: Any) -> JobContent:
    job = await get_job(storage, job_id)
    after = structs.replace(content_of(job), **changes)
    await storage.jobs.edit(job_id, token=job.token, before=content_of(job), after=after)
    return after


def everything(clock: ManualClock) -> JobContent:
    return JobContent(
        payload='{"big":9223372036854775808,  "é":1}',
        priority=-7,
        due_at=clock.now() + 3 * DAY,
        max_attempts=None,
        timeout=timedelta(seconds=90, microseconds=1),
        expires_at=clock.now() + 9 * DAY,
        tags=("a", 'b"c'),
        metadata={"who": "ada", "é": "ü"},
    )


@pytest.mark.parametrize("status", WAITING)
async def test_every_field_changes_and_nothing_else_does(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status, tags=("old", "a"), expires_at=clock.now() + DAY)
    before = await get_job(storage, job_id)
    clock.advance(1)
    wanted = everything(clock)
    await storage.jobs.edit(job_id, token=before.token, before=content_of(before), after=wanted)
    job = await get_job(storage, job_id)
    assert content_of(job) == wanted
    fields = {name: getattr(before, name) for name in CONTENT}
    cause = Cause.ENQUEUED if status is JobStatus.PENDING else before.cause
    assert structs.replace(job, **fields) == structs.replace(before, cause=cause)


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("status", WAITING)
async def test_one_field_changes_and_the_others_stay(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus, name: str
) -> None:
    job_id = await a_job(storage, lease, status, metadata='{"k" : "v"}')
    clock.advance(1)
    wanted = await edit(storage, job_id, **{name: getattr(everything(clock), name)})
    assert content_of(await get_job(storage, job_id)) == wanted
    [event] = [
        each for each in await storage.jobs.events(job_id=job_id) if each.kind.value == "edited"
    ]
    assert (event.at, event.queue, event.detail) == (clock.now(), QUEUE, name)


async def test_an_edit_back_leaves_the_job_as_before(storage: Storage, clock: ManualClock) -> None:
    job_id = await enqueue_one(storage)
    before = await get_job(storage, job_id)
    await edit(storage, job_id, **structs.asdict(everything(clock)))
    await edit(storage, job_id, **structs.asdict(content_of(before)))
    assert await get_job(storage, job_id) == before
    for which in (JobFilter(tag="a"), JobFilter(tag='b"c')):
        assert (await storage.jobs.list(which)).jobs == ()


async def test_an_edit_of_nothing_is_no_event(storage: Storage) -> None:
    job_id = await enqueue_one(storage)
    await edit(storage, job_id)
    assert await storage.jobs.events(job_id=job_id) == []


async def test_claims_follow_the_new_priority_and_the_new_time(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first, second, third = [await enqueue_one(storage) for _ in range(3)]
    later = await enqueue_one(storage, delay=DAY)
    await edit(storage, third, priority=-5)
    await edit(storage, first, due_at=clock.now() + 10 * SECOND)
    await edit(storage, later, due_at=clock.now() - SECOND, priority=-1)
    assert [one.claim.job_id for one in await claim(storage, lease, limit=9)] == [
        third,
        later,
        second,
    ]
    clock.advance(10)
    claimed = await claim_one(storage, lease)
    assert (claimed.claim.job_id, claimed.run_at) == (first, clock.now())


async def test_a_claim_brings_the_new_content(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    wanted = structs.replace(everything(clock), due_at=clock.now())
    await edit(storage, job_id, **structs.asdict(wanted))
    claimed = await claim_one(storage, lease)
    assert (claimed.payload, claimed.tags, claimed.timeout, claimed.max_attempts) == (
        wanted.payload,
        wanted.tags,
        wanted.timeout,
        None,
    )


async def test_lists_follow_the_new_tags(storage: Storage) -> None:
    job_id = await enqueue_one(storage, tags=("old", "both"))
    await edit(storage, job_id, tags=("both", "new"))
    found = {
        tag: [job.id for job in (await storage.jobs.list(JobFilter(tag=tag))).jobs]
        for tag in ("old", "both", "new")
    }
    assert found == {"old": [], "both": [job_id], "new": [job_id]}


@pytest.mark.parametrize("status", WAITING)
async def test_the_new_expiry_counts(
    storage: Storage, lease: PodLease, clock: ManualClock, status: JobStatus
) -> None:
    longer = await a_job(storage, lease, status, expires_at=clock.now() + SECOND)
    shorter = await a_job(storage, lease, status)
    await edit(storage, longer, expires_at=None)
    await edit(storage, shorter, expires_at=clock.now() + SECOND)
    clock.advance(1)
    assert await storage.jobs.expire(10) == 1
    assert (await get_job(storage, shorter)).cause is Cause.EXPIRED
    assert (await get_job(storage, longer)).status is status


async def test_a_blocked_job_is_due_at_the_new_time_once_its_parents_settled(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    child = await a_job(storage, lease, JobStatus.BLOCKED)
    await edit(storage, child, due_at=clock.now() + DAY)
    [parent] = (await get_job(storage, child)).waits_for
    await storage.jobs.delete(only(parent))
    assert [each.child_id for each in await storage.jobs.handovers(9)] == [child]
    job = await get_job(storage, child)
    assert (job.status, job.due_at) == (JobStatus.BLOCKED, clock.now() + DAY)


@pytest.mark.parametrize("verb", ["enqueue", "requeue", "release"])
async def test_a_time_that_an_operator_asked_for_is_not_taken_for_a_clock_set_back(
    storage: Storage, lease: PodLease, clock: ManualClock, verb: str
) -> None:
    job_id = await enqueue_one(storage)
    if verb == "requeue":
        await storage.jobs.cancel(only(job_id))
        await storage.jobs.requeue(only(job_id))
    if verb == "release":
        await storage.jobs.release([(await claim_one(storage, lease)).claim])
    await edit(storage, job_id, due_at=clock.now() + DAY)
    await storage.jobs.bring_back_jobs(10)
    assert (await get_job(storage, job_id)).due_at == clock.now() + DAY


async def test_a_job_on_hold_stays_on_hold(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage, kinds=("tests.other",))
    job_id = await enqueue_one(storage)
    assert await claim(storage, lease, kinds=("tests.other",)) == []
    assert (await get_job(storage, job_id)).hold is Hold.UNKNOWN_KIND
    await edit(storage, job_id, priority=-3, payload='{"n":1}', expires_at=clock.now() + SECOND)
    assert (await get_job(storage, job_id)).hold is Hold.UNKNOWN_KIND
    counts = (await storage.jobs.counts([QUEUE]))[QUEUE]
    assert (counts.held, counts.due) == (1, 0)
    knows = await register(storage)
    await storage.procs.free_held_jobs(10)
    assert (await claim_one(storage, knows)).priority == -3


@pytest.mark.parametrize(
    "status", [JobStatus.IN_PROGRESS, JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED]
)
async def test_a_job_that_does_not_wait_is_refused(
    storage: Storage, lease: PodLease, status: JobStatus
) -> None:
    job_id = await a_job(storage, lease, status)
    before = await get_job(storage, job_id)
    with pytest.raises(Conflict, match="only a waiting job is edited"):
        await edit(storage, job_id, priority=3)
    assert await get_job(storage, job_id) == before


async def test_a_job_that_is_not_there_is_refused(storage: Storage) -> None:
    job_id = await enqueue_one(storage)
    content = content_of(await get_job(storage, job_id))
    with pytest.raises(NotFound):
        await storage.jobs.edit(
            new_job_id(), token=1, before=content, after=structs.replace(content, priority=3)
        )


async def refused(storage: Storage, seen: Job, match: str) -> None:
    before = await get_job(storage, seen.id)
    content = content_of(seen)
    wanted = structs.replace(content, priority=9, payload='{"n":2}', tags=("x",))
    with pytest.raises(Conflict, match=match):
        await storage.jobs.edit(seen.id, token=seen.token, before=content, after=wanted)
    assert await get_job(storage, seen.id) == before
    assert (await storage.jobs.list(JobFilter(tag="x"))).jobs == ()


async def test_a_job_that_has_run_since_is_refused(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    seen = await get_job(storage, job_id)
    await run_one(storage, lease, failed())
    await refused(storage, seen, "has run since you looked")


@pytest.mark.parametrize("name", CONTENT)
async def test_of_two_edits_of_one_content_the_second_is_refused(
    storage: Storage, clock: ManualClock, name: str
) -> None:
    job_id = await enqueue_one(storage)
    seen = await get_job(storage, job_id)
    await edit(storage, job_id, **{name: getattr(everything(clock), name)})
    await refused(storage, seen, name)


async def test_of_many_edits_at_once_one_is_stored(storage: Storage, clock: ManualClock) -> None:
    job_id = await enqueue_one(storage)
    seen = await get_job(storage, job_id)
    content = content_of(seen)
    stored: list[int] = []

    async def one(priority: int) -> None:
        after = structs.replace(content, priority=priority, payload=f'{{"n":{priority}}}')
        try:
            await storage.jobs.edit(job_id, token=seen.token, before=content, after=after)
        except Conflict:
            return
        stored.append(priority)

    async with anyio.create_task_group() as group:
        for number in range(1, 9):
            group.start_soon(one, number)
    [priority] = stored
    job = await get_job(storage, job_id)
    assert (job.priority, job.payload) == (priority, f'{{"n":{priority}}}')


async def test_another_payload_drops_the_checkpoint_and_other_values_do_not(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await storage.jobs.save_checkpoint(claimed.claim, '"half"')
    await finish(storage, claimed, failed())
    await edit(storage, job_id, priority=2)
    assert await storage.jobs.checkpoint(job_id) == '"half"'
    await edit(storage, job_id, payload='{"n":1}')
    assert await storage.jobs.checkpoint(job_id) is None


@pytest.mark.parametrize("fingerprint", ["", "ours"])
async def test_a_repeat_of_the_request_stays_a_repeat(storage: Storage, fingerprint: str) -> None:
    request = new_job(fingerprint=fingerprint)
    await storage.jobs.enqueue([request])
    await edit(storage, request.id, payload='{"n":1}')
    [outcome] = await storage.jobs.enqueue([request])
    assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
    assert (await get_job(storage, request.id)).payload == '{"n":1}'
    if fingerprint:
        with pytest.raises(Conflict):
            await storage.jobs.enqueue([structs.replace(request, fingerprint="theirs")])


async def test_an_edited_job_ends_as_any_other(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    await edit(storage, job_id, tags=("a",), expires_at=(await storage.cron.now()) + DAY)
    await run_one(storage, lease, done())
    job = await get_job(storage, job_id)
    assert (job.status, job.tags) == (JobStatus.DONE, ("a",))
    assert await storage.jobs.expire(10) == 0
    await storage.jobs.delete(only(job_id))
    assert (await storage.jobs.list(JobFilter(tag="a"))).jobs == ()
