"""JobStore.note_progress, states and job_log: fences, bounds, and what goes with the job."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId, new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, Claim, ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.progress import (
    ATTEMPTS_KEPT,
    BYTES_KEPT,
    LINES_KEPT,
    NewLine,
    NewProgress,
    Progress,
    ProgressNote,
)
from forge_jobs.model.queues import QueueSettings, Retention
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    BEGUN,
    DAY,
    LEASE,
    QUEUE,
    SECOND,
    claim_one,
    cleaned_up,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    only,
    register,
    revive,
    snoozed,
)

pytestmark = pytest.mark.anyio


def lines(*texts: str, first: int = 1) -> tuple[NewLine, ...]:
    return tuple(NewLine(seq, BEGUN, 20, text) for seq, text in enumerate(texts, first))


def note(
    claimed: ClaimedJob,
    *texts: str,
    first: int = 1,
    progress: NewProgress | None = None,
    claim: Claim | None = None,
) -> ProgressNote:
    return ProgressNote(
        claim=claim or claimed.claim,
        attempt=claimed.attempt,
        progress=progress,
        lines=lines(*texts, first=first),
    )


async def tell(storage: Storage, *notes: ProgressNote) -> Sequence[bool | None]:
    return await storage.jobs.note_progress(notes)


async def texts(storage: Storage, job_id: JobId, attempt: int | None = None) -> list[str]:
    return [line.text for line in (await storage.jobs.job_log(job_id, attempt=attempt)).lines]


async def claimed_one(storage: Storage, lease: PodLease) -> ClaimedJob:
    await enqueue_one(storage)
    return await claim_one(storage, lease)


async def progress_of(storage: Storage, job_id: JobId) -> Progress | None:
    return (await storage.jobs.states([job_id]))[job_id].progress


async def test_the_last_progress_is_kept_with_the_stores_time(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    job_id = claimed.claim.job_id
    assert await progress_of(storage, job_id) is None
    assert await tell(storage, note(claimed, progress=NewProgress(1, 3, "one"))) == [True]
    clock.advance(2)
    assert await tell(storage, note(claimed, progress=NewProgress(2.5, None, "é"))) == [True]
    assert await progress_of(storage, job_id) == Progress(
        current=2.5, total=None, message="é", attempt=1, at=clock.now()
    )
    assert await tell(storage, note(claimed, "a line")) == [True]
    found = await progress_of(storage, job_id)
    assert found is not None
    assert found.message == "é"


async def test_lines_come_back_in_order_and_page_by_page(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    job_id = claimed.claim.job_id
    await tell(storage, note(claimed, "a", "b"))
    await tell(storage, note(claimed, "c", "d \U0001f600", first=3))
    page = await storage.jobs.job_log(job_id, limit=3)
    assert [(line.number, line.text) for line in page.lines] == [(1, "a"), (2, "b"), (3, "c")]
    assert (page.attempt, page.attempts) == (1, (1,))
    [last] = (await storage.jobs.job_log(job_id, after=3)).lines
    assert (last.number, last.text, last.at, last.level) == (4, "d \U0001f600", BEGUN, 20)
    assert last.token == claimed.claim.token
    assert (await storage.jobs.job_log(job_id, after=4)).lines == ()


async def test_a_repeat_adds_nothing(storage: Storage, lease: PodLease) -> None:
    claimed = await claimed_one(storage, lease)
    first = note(claimed, "a", "b")
    assert await tell(storage, first) == [True]
    assert await tell(storage, first) == [True]
    assert await tell(storage, note(claimed, "b", "c", first=2)) == [True]
    assert await texts(storage, claimed.claim.job_id) == ["a", "b", "c"]


async def test_a_gap_in_the_count_is_a_gap_in_the_numbers(
    storage: Storage, lease: PodLease
) -> None:
    claimed = await claimed_one(storage, lease)
    await tell(storage, note(claimed, "a"))
    await tell(storage, note(claimed, "later", first=11))
    page = await storage.jobs.job_log(claimed.claim.job_id)
    assert [line.number for line in page.lines] == [1, 11]


async def test_one_call_takes_the_notes_of_many_jobs_of_several_queues(storage: Storage) -> None:
    lease = await register(storage, queues=(QUEUE, "other"))
    claimed = []
    for queue in (QUEUE, "other", QUEUE):
        await enqueue_one(storage, queue=queue)
        claimed.append(await claim_one(storage, lease, queue=queue))
    foreign = Claim(QUEUE, new_job_id(), 1, lease.host_id)
    notes = [note(each, str(n)) for n, each in enumerate(claimed)]
    notes.insert(1, note(claimed[0], claim=foreign))
    assert await tell(storage, *notes) == [True, False, True, True]
    found = [await texts(storage, each.claim.job_id) for each in claimed]
    assert found == [["0"], ["1"], ["2"]]
    states = await storage.jobs.states([*(each.claim.job_id for each in claimed), foreign.job_id])
    assert set(states) == {each.claim.job_id for each in claimed}


@pytest.mark.parametrize("since", ["revived", "claimed again", "requeued and claimed", "deleted"])
async def test_a_lost_claim_tells_nothing(
    storage: Storage, lease: PodLease, clock: ManualClock, since: str
) -> None:
    claimed = await claimed_one(storage, lease)
    job_id = claimed.claim.job_id
    await tell(storage, note(claimed, "mine", progress=NewProgress(1)))
    if since == "requeued and claimed":
        await finish(storage, claimed, dead())
        await storage.jobs.requeue(only(job_id))
        await claim_one(storage, lease)
    elif since == "deleted":
        await finish(storage, claimed, dead())
        await storage.jobs.delete(only(job_id))
    else:
        clock.advance(LEASE.total_seconds() + 1)
        assert await revive(storage, claimed)
        if since == "claimed again":
            await claim_one(storage, await register(storage))
    late = note(claimed, "late", first=2, progress=NewProgress(2))
    assert await tell(storage, late) == [False]
    assert await texts(storage, job_id) == ([] if since == "deleted" else ["mine"])


@pytest.mark.parametrize("other", ["token", "pod", "queue"])
async def test_every_part_of_the_claim_counts(
    storage: Storage, lease: PodLease, other: str
) -> None:
    claimed = await claimed_one(storage, lease)
    queue, job_id, token, host_id = (
        getattr(claimed.claim, name) for name in ("queue", "job_id", "token", "host_id")
    )
    wrong = {
        "token": Claim(queue, job_id, token + 1, host_id),
        "pod": Claim(queue, job_id, token, new_host_id()),
        "queue": Claim("other", job_id, token, host_id),
    }[other]
    assert await tell(storage, note(claimed, "a", claim=wrong)) == [False]
    assert await texts(storage, job_id) == []


@pytest.mark.parametrize("end", [done(), dead(), failed(SECOND), snoozed(SECOND)], ids=str)
async def test_the_owner_of_an_end_may_tell_until_the_next_claim(
    storage: Storage, lease: PodLease, end: object
) -> None:
    claimed = await claimed_one(storage, lease)
    assert await finish(storage, claimed, end)  # type: ignore[arg-type]
    assert await tell(storage, note(claimed, "last", progress=NewProgress(9))) == [True]
    assert await texts(storage, claimed.claim.job_id) == ["last"]


async def test_each_attempt_has_lines_of_its_own(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first = await claimed_one(storage, lease)
    job_id = first.claim.job_id
    await tell(storage, note(first, "first", progress=NewProgress(5)))
    await finish(storage, first, failed())
    assert await progress_of(storage, job_id) is not None
    second = await claim_one(storage, lease)
    assert await progress_of(storage, job_id) is None
    await tell(storage, note(second, "second"))
    assert await progress_of(storage, job_id) is None
    assert await texts(storage, job_id, 1) == ["first"]
    assert await texts(storage, job_id) == await texts(storage, job_id, 2) == ["second"]
    assert (await storage.jobs.job_log(job_id)).attempts == (1, 2)
    nothing = await storage.jobs.job_log(job_id, attempt=3)
    assert (nothing.attempt, nothing.lines, nothing.attempts) == (3, (), (1, 2))


@pytest.mark.parametrize("how", ["handed back", "requeued"])
async def test_a_further_run_of_an_attempt_goes_on_in_the_same_log(
    storage: Storage, lease: PodLease, how: str
) -> None:
    first = await claimed_one(storage, lease)
    job_id = first.claim.job_id
    await tell(storage, note(first, "a", "b", progress=NewProgress(1)))
    if how == "handed back":
        await finish(storage, first, snoozed())
    else:
        await finish(storage, first, dead())
        await storage.jobs.requeue(only(job_id))
    second = await claim_one(storage, lease)
    assert second.attempt == first.attempt
    await tell(storage, note(second, "c"))
    assert await progress_of(storage, job_id) is None
    page = await storage.jobs.job_log(job_id)
    assert [(line.number, line.text) for line in page.lines] == [(1, "a"), (2, "b"), (3, "c")]
    assert [line.token for line in page.lines] == [first.claim.token] * 2 + [second.claim.token]


async def test_the_newest_lines_stay(storage: Storage, lease: PodLease) -> None:
    claimed = await claimed_one(storage, lease)
    job_id = claimed.claim.job_id
    await tell(storage, note(claimed, *map(str, range(1, LINES_KEPT + 1))))
    assert len(await texts(storage, job_id)) == LINES_KEPT
    await tell(storage, note(claimed, "x", "y", first=LINES_KEPT + 1))
    page = await storage.jobs.job_log(job_id)
    assert [line.number for line in page.lines] == list(range(3, LINES_KEPT + 3))
    assert page.lines[-1].text == "y"


@pytest.mark.parametrize("size", [8 * 1024, 700])
async def test_the_bytes_of_an_attempt_are_bounded(
    storage: Storage, lease: PodLease, size: int
) -> None:
    claimed = await claimed_one(storage, lease)
    text = "é" * (size // 2)
    most = BYTES_KEPT // size
    seq = 1
    for _ in range(3):
        await tell(storage, note(claimed, *[text] * (most - 1), first=seq))
        seq += most - 1
    await tell(storage, note(claimed, "short", first=seq))
    page = await storage.jobs.job_log(claimed.claim.job_id)
    kept = (BYTES_KEPT - len("short")) // size + 1
    assert [line.number for line in page.lines] == list(range(seq - kept + 1, seq + 1))


async def test_the_attempts_that_ran_last_stay(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage, max_attempts=None)
    for _ in range(ATTEMPTS_KEPT + 2):
        claimed = await claim_one(storage, lease)
        await tell(storage, note(claimed, str(claimed.attempt)))
        await finish(storage, claimed, failed())
    page = await storage.jobs.job_log(job_id)
    assert page.attempts == tuple(range(3, ATTEMPTS_KEPT + 3))
    assert await texts(storage, job_id, 2) == []
    assert await texts(storage, job_id, 3) == ["3"]


@pytest.mark.parametrize("how", ["delete", "retention"])
async def test_lines_and_progress_go_with_the_job(
    storage: Storage, lease: PodLease, clock: ManualClock, how: str
) -> None:
    claimed, other = await claimed_one(storage, lease), await claimed_one(storage, lease)
    job_id = claimed.claim.job_id
    for each in (claimed, other):
        await tell(storage, note(each, "a", progress=NewProgress(1)))
    await finish(storage, claimed, done())
    if how == "delete":
        await storage.jobs.delete(only(job_id))
    else:
        settings = QueueSettings(retention=Retention(done=DAY))
        await storage.config.ensure_queue(QUEUE, settings)
        clock.advance(2 * DAY.total_seconds())
        await cleaned_up(storage)
    assert await storage.jobs.states([job_id]) == {}
    assert await texts(storage, job_id) == []
    assert await texts(storage, other.claim.job_id) == ["a"]
    assert await progress_of(storage, other.claim.job_id) is not None


async def test_a_state_says_how_the_job_goes(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage, delay=timedelta(0))
    before = (await storage.jobs.states([job_id]))[job_id]
    assert (before.status, before.cause, before.attempt) == (
        JobStatus.PENDING,
        Cause.ENQUEUED,
        0,
    )
    assert (before.queue, before.kind, before.is_final) == (QUEUE, "tests.noop", False)
    claimed = await claim_one(storage, lease)
    running = (await storage.jobs.states([job_id]))[job_id]
    assert (running.status, running.attempt) == (JobStatus.IN_PROGRESS, 1)
    assert running.token == claimed.claim.token
    await finish(storage, claimed, done())
    ended = (await storage.jobs.states([job_id]))[job_id]
    assert (ended.status, ended.cause, ended.is_final) == (JobStatus.DONE, Cause.SUCCEEDED, True)


async def test_the_states_of_many_jobs_come_in_one_call(storage: Storage) -> None:
    ids = [await enqueue_one(storage) for _ in range(3)]
    many = [*ids, *(new_job_id() for _ in range(600))]
    assert set(await storage.jobs.states(many)) == set(ids)
    assert await storage.jobs.states([]) == {}


async def test_nothing_to_tell_is_no_call(storage: Storage) -> None:
    assert await tell(storage) == []
