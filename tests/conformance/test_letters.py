"""Letters of dead jobs: written with the end, relayed as jobs of another queue."""

from datetime import timedelta

import msgspec
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, EnqueueOutcome, Job, JobStatus, Unique
from forge_jobs.model.letters import (
    DEAD_LETTER_KIND,
    DeadLetter,
    Letter,
    dead_letter_of,
)
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, QueueSettings, Retention, Wake
from forge_jobs.model.transitions import Transition
from forge_jobs.privacy.secrets import ORIGIN
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    cleaned_up,
    crashed,
    dead,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    get_job,
    only,
    register,
    revive,
    run_one,
)

pytestmark = pytest.mark.anyio

TO = "dead"


async def ask_for_letters(storage: Storage, to: str = TO, queue: str = QUEUE) -> None:
    await storage.config.set_queue(queue, QueueChange(dead_letter=to))


async def letters(storage: Storage) -> list[Letter]:
    return await storage.jobs.letters(100)


async def relay(storage: Storage) -> list[Job]:
    """Relay all letters as a pod does, and return their jobs."""
    found = await letters(storage)
    outcomes = await storage.jobs.enqueue([letter.job for letter in found])
    assert outcomes == [EnqueueOutcome(letter.job.id) for letter in found]
    await storage.jobs.forget_letters(found)
    return [await get_job(storage, letter.job.id) for letter in found]


async def the_letter(storage: Storage) -> DeadLetter:
    [job] = await relay(storage)
    letter = dead_letter_of(job)
    assert letter is not None
    return letter


async def test_a_dead_job_leaves_its_payload_errors_and_origin(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await ask_for_letters(storage)
    payload = '{ "n" : 1.50, "words": "\\u00e4\\n\U0001f600" }'
    origin = await enqueue_one(
        storage,
        payload=payload,
        priority=7,
        tags=("red", 'a"b'),
        metadata='{"who":"me"}',
        trace='{"traceparent":"00-1"}',
        schedule="nightly",
    )
    enqueued_at = clock.now()
    clock.advance(SECOND)
    await run_one(storage, lease, failed(error=error("first")))
    clock.advance(SECOND)
    await run_one(storage, lease, dead(error=error("last", attempt=2, cause=Cause.TIMED_OUT)))
    died = await get_job(storage, origin)
    [job] = await relay(storage)
    assert (job.queue, job.kind, job.status) == (TO, DEAD_LETTER_KIND, JobStatus.PENDING)
    assert (job.payload, job.priority, job.tags) == (payload, 7, ("red", 'a"b'))
    assert (job.metadata["who"], job.trace) == ("me", '{"traceparent":"00-1"}')
    assert job.metadata[ORIGIN] == f"{origin} {died.kind}"
    assert (job.schedule, job.unique_key, job.attempt) == ("", None, 0)
    letter = dead_letter_of(job)
    assert letter == DeadLetter(
        queue=QUEUE,
        job_id=origin,
        kind=died.kind,
        attempts=2,
        cause=died.cause,
        enqueued_at=enqueued_at,
        died_at=clock.now(),
        schedule="nightly",
        errors=died.errors,
        payload=payload,
    )
    assert [each.message for each in letter.errors] == ["first", "last"]
    assert await letters(storage) == []
    assert dead_letter_of(died) is None


@pytest.mark.parametrize(
    "transition",
    [dead(error=None), dead(), dead(cause=Cause.REJECTED, error=None, hand_back=True)],
    ids=["plain", "with an error", "handed back"],
)
async def test_every_death_of_a_claim_leaves_one_letter(
    storage: Storage, lease: PodLease, transition: Transition
) -> None:
    await ask_for_letters(storage)
    for _ in range(3):
        await enqueue_one(storage)
    claimed = await claim(storage, lease, limit=3)
    assert await storage.jobs.letters(10) == []
    for each in claimed:
        assert await finish(storage, each, transition)
        assert await finish(storage, each, transition)
    found = [dead_letter_of(job) for job in await relay(storage)]
    assert [each and each.job_id for each in found] == [each.claim.job_id for each in claimed]
    assert {each and each.cause for each in found} == {transition.cause}
    assert {each and each.attempts for each in found} == {0 if transition.hand_back else 1}


async def test_a_job_that_the_reaper_gives_up_leaves_a_letter(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await ask_for_letters(storage)
    origin = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.advance(DAY)
    transition = crashed(status=JobStatus.DEAD, error=error("gone"))
    assert await revive(storage, claimed, transition)
    letter = await the_letter(storage)
    assert (letter.job_id, letter.cause) == (origin, Cause.CRASHED)
    assert [each.message for each in letter.errors] == ["gone"]


async def test_no_other_end_leaves_a_letter(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await ask_for_letters(storage)
    await enqueue_one(storage)
    await run_one(storage, lease, done())
    cancelled = await enqueue_one(storage)
    await storage.jobs.cancel(only(cancelled))
    await enqueue_one(storage, expires_at=clock.now() + SECOND)
    asked = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    clock.advance(SECOND)
    assert await storage.jobs.expire(10) + 1
    await storage.jobs.cancel(only(claimed.claim.job_id, asked))
    # A job that was asked to cancel ends as cancelled, whatever its handler said.
    await finish(storage, claimed, dead(error=error()))
    assert await letters(storage) == []
    assert TO not in {state.name for state in await storage.config.queues()}


async def test_no_letter_where_none_is_asked_for(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)
    await run_one(storage, lease, dead())
    await ask_for_letters(storage)
    await ask_for_letters(storage, "")
    await enqueue_one(storage)
    await run_one(storage, lease, dead(error=error()))
    assert await letters(storage) == []


async def test_the_setting_at_the_time_of_the_death_counts(
    storage: Storage, lease: PodLease
) -> None:
    await ask_for_letters(storage, "before")
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await ask_for_letters(storage)
    await finish(storage, claimed, dead())
    await ask_for_letters(storage, "after")
    assert [job.queue for job in await relay(storage)] == [TO]


async def test_a_letter_that_dies_leaves_no_letter(storage: Storage, lease: PodLease) -> None:
    await ask_for_letters(storage)
    await ask_for_letters(storage, QUEUE, queue=TO)
    await enqueue_one(storage)
    await run_one(storage, lease, dead())
    await relay(storage)
    other = await register(storage, queues=(TO,), kinds=(DEAD_LETTER_KIND,))
    for transition in (failed(error=error()), dead(error=error())):
        claimed = await claim_one(storage, other, queue=TO, kinds=(DEAD_LETTER_KIND,))
        assert await finish(storage, claimed, transition)
    assert await letters(storage) == []


async def test_an_ordinary_job_of_a_letter_queue_leaves_one(
    storage: Storage, lease: PodLease
) -> None:
    await ask_for_letters(storage)
    await ask_for_letters(storage, "last", queue=TO)
    origin = await enqueue_one(storage, queue=TO)
    other = await register(storage, queues=(TO,))
    claimed = await claim_one(storage, other, queue=TO)
    assert await finish(storage, claimed, dead())
    letter = await the_letter(storage)
    assert (letter.queue, letter.job_id) == (TO, origin)


async def test_a_queue_may_name_itself(storage: Storage, lease: PodLease) -> None:
    await ask_for_letters(storage, QUEUE)
    origin = await enqueue_one(storage)
    await run_one(storage, lease, dead())
    [job] = await relay(storage)
    assert job.queue == QUEUE
    assert (await get_job(storage, origin)).status is JobStatus.DEAD


async def test_what_is_not_kept_is_in_the_letter(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    nothing = Retention(dead=timedelta(0))
    await storage.config.set_queue(QUEUE, QueueChange(dead_letter=TO, retention=nothing))
    origins = [await enqueue_one(storage, payload='{"n":7}') for _ in range(2)]
    await run_one(storage, lease, dead(error=error("last")))
    await run_one(storage, lease, dead(error=None))
    assert (await get_job(storage, origins[0])).payload == ""
    clock.advance(2 * 60 * SECOND)
    assert await cleaned_up(storage) >= 2
    assert await storage.jobs.get(origins) == {}
    found = [dead_letter_of(job) for job in await relay(storage)]
    assert [each and each.payload for each in found] == ['{"n":7}', '{"n":7}']
    assert [each and len(each.errors) for each in found] == [1, 0]


async def test_each_death_after_a_requeue_leaves_a_letter_of_its_own(
    storage: Storage, lease: PodLease
) -> None:
    await ask_for_letters(storage)
    origin = await enqueue_one(storage, unique=Unique("k"))
    await run_one(storage, lease, dead(error=error("first")))
    await storage.jobs.requeue(only(origin))
    # The first end stands in a letter, whatever becomes of the job.
    await run_one(storage, lease, dead(error=error("second")))
    first, second = await relay(storage)
    assert first.id < second.id or first.enqueued_at == second.enqueued_at
    assert first.id != second.id
    found = [dead_letter_of(job) for job in (first, second)]
    assert [[each.message for each in one.errors] for one in found if one] == [
        ["first"],
        ["first", "second"],
    ]
    await storage.jobs.requeue(only(origin))
    assert (await get_job(storage, origin)).status is JobStatus.PENDING


async def test_a_relay_that_is_repeated_stores_one_job(storage: Storage, lease: PodLease) -> None:
    await ask_for_letters(storage)
    await enqueue_one(storage)
    await run_one(storage, lease, dead())
    found = await letters(storage)
    await storage.jobs.enqueue([letter.job for letter in found])
    # The pod dies here. Another one finds the letter again, whatever its job does meanwhile.
    other = await register(storage, queues=(TO,), kinds=(DEAD_LETTER_KIND,))
    claimed = await claim_one(storage, other, queue=TO, kinds=(DEAD_LETTER_KIND,))
    assert await finish(storage, claimed, done())
    assert await letters(storage) == found
    [again] = await relay(storage)
    assert again.status is JobStatus.DONE
    await storage.jobs.forget_letters(found)
    assert (await storage.jobs.counts([TO]))[TO].by_status["done"] == 1
    assert await letters(storage) == []


async def test_letters_come_oldest_first_and_some_are_left_out(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    origins: list[JobId] = []
    for to in ("one", "two", "one", "two"):
        await ask_for_letters(storage, to)
        origins.append(await enqueue_one(storage))
        await run_one(storage, lease, dead())
        clock.advance(SECOND)
    found = await letters(storage)
    known = {letter.id: dead_letter_of_new(letter).job_id for letter in found}
    assert list(known.values()) == origins
    assert len(await storage.jobs.letters(3)) == 3
    rest = await storage.jobs.letters(100, skip=[found[0].id, found[3].id])
    assert [letter.id for letter in rest] == [found[1].id, found[2].id]
    of_one = await storage.jobs.letters(100, not_to=["two"])
    assert [letter.id for letter in of_one] == [found[0].id, found[2].id]
    await storage.jobs.forget_letters(found[:1])
    assert [letter.id for letter in await storage.jobs.letters(1, not_to=["two"])] == [found[2].id]
    await storage.jobs.forget_letters(found)
    assert await letters(storage) == []


def dead_letter_of_new(letter: Letter) -> DeadLetter:
    metadata = msgspec.json.decode(letter.job.metadata, type=dict[str, str])
    return msgspec.json.decode(
        msgspec.json.encode(
            {**msgspec.json.decode(metadata["forge_jobs.letter"]), "payload": letter.job.payload}
        ),
        type=DeadLetter,
    )


async def test_payloads_of_one_answer_are_bounded(storage: Storage, lease: PodLease) -> None:
    await ask_for_letters(storage)
    large = '{"text":"' + "x" * 1_000_000 + '"}'
    for _ in range(6):
        await enqueue_one(storage, payload=large)
    for _ in range(6):
        await run_one(storage, lease, dead())
    found = await letters(storage)
    assert 1 <= len(found) < 6
    seen = 0
    while jobs := await relay(storage):
        assert all(job.payload == large for job in jobs)
        seen += len(jobs)
    assert seen == 6


async def test_old_errors_of_a_letter_make_room_for_new_ones(
    storage: Storage, lease: PodLease
) -> None:
    await ask_for_letters(storage)
    origin = await enqueue_one(storage)
    for attempt in range(1, 13):
        one = error(f"e{attempt}", attempt=attempt, traceback="line\n" * 3_000)
        await run_one(storage, lease, (dead if attempt == 12 else failed)(error=one))
    letter = await the_letter(storage)
    assert [each.message for each in letter.errors] == [f"e{number}" for number in range(1, 13)]
    assert letter.errors[-1] == (await get_job(storage, origin)).errors[-1]
    assert letter.errors[0].traceback == ""


async def test_a_death_wakes_those_who_relay_and_a_beat_says_that_letters_wait(
    storage: Storage, lease: PodLease
) -> None:
    await ask_for_letters(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert not (await storage.jobs.heartbeat(lease, [], DAY)).letters
    while await storage.jobs.wait_for_work(frozenset(), timedelta(0)):
        pass
    await finish(storage, claimed, dead())
    woken = Wake()
    for _ in range(3):
        if not woken.letters:
            woken = await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))
    assert woken.letters
    assert (await storage.jobs.heartbeat(lease, [], DAY)).letters
    await relay(storage)
    assert not (await storage.jobs.heartbeat(lease, [], DAY)).letters


async def test_a_queue_deleted_with_letters_under_way_loses_none(
    storage: Storage, clock: ManualClock
) -> None:
    await ask_for_letters(storage, queue="short-lived")
    lease = await register(storage, queues=("short-lived",))
    origin = await enqueue_one(storage, queue="short-lived")
    claimed = await claim_one(storage, lease, queue="short-lived")
    await finish(storage, claimed, dead())
    await storage.procs.unregister(lease)
    await storage.jobs.delete(only(origin))
    await storage.config.delete_queue("short-lived")
    for _ in range(3):
        clock.advance(400 * DAY)
        await cleaned_up(storage)
        await storage.jobs.sweep(1_000)
    assert (await the_letter(storage)).job_id == origin


async def test_the_setting_is_declared_by_code_and_overruled_by_operators(
    storage: Storage,
) -> None:
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(dead_letter="a"))
    assert (state.settings.dead_letter, state.overridden) == ("a", frozenset())
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(dead_letter="b"))
    assert state.settings.dead_letter == "b"
    state = await storage.config.set_queue(QUEUE, QueueChange(dead_letter=""))
    assert (state.settings.dead_letter, state.overridden) == ("", frozenset({"dead_letter"}))
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(dead_letter="b", max_workers=3))
    assert (state.settings.dead_letter, state.settings.max_workers) == ("", 3)
    [listed] = [each for each in await storage.config.queues() if each.name == QUEUE]
    assert listed == state
