"""Letters of dead jobs: from the end of a job to the handler of the other queue."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import pytest

from forge_jobs import (
    DEAD_LETTER_KIND,
    Dead,
    DeadLetter,
    Encryption,
    EnqueueRequest,
    HandlerRegistry,
    JobClient,
    JobContext,
    Secret,
    dead_letter_of,
)
from forge_jobs.clock import ManualClock
from forge_jobs.errors import StorageError, StorageRefused, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Cause, EnqueueOutcome, Hold, Job, JobStatus, NewJob
from forge_jobs.model.letters import Letter
from forge_jobs.model.queues import QueueChange, QueueSettings
from forge_jobs.model.transitions import Finalization
from forge_jobs.privacy.encryption import is_encrypted
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.passes.letters import LetterRelay, RelayReport
from forge_jobs.storage.protocols import JobStore, Storage
from tests.support.factories import (
    SECOND,
    claim,
    dead,
    enqueue_one,
    get_job,
    new_job,
    register,
    run_one,
)
from tests.support.runtimes import a_runtime, ended, job_when
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

TO = "dead"
PARKED = QueueSettings(max_workers=2, dead_letter=TO)


def failing(*keys: str) -> tuple[HandlerRegistry, list[tuple[DeadLetter, str]]]:
    """A registry whose jobs die, and what its handler of letters has read."""
    handlers = HandlerRegistry(encryption=Encryption(keys) if keys else None)
    read: list[tuple[DeadLetter, str]] = []

    @handlers.job("pay", max_attempts=2)
    async def pay(card: Annotated[str, Secret]) -> None:
        raise ValueError("the bank says no")

    @handlers.job(DEAD_LETTER_KIND)
    async def park(ctx: JobContext, letter: DeadLetter) -> str:
        assert ctx.dead_letter == letter
        read.append((letter, ctx.job_id))
        return letter.cause

    return handlers, read


def a_request(card: str = "4111-1111") -> EnqueueRequest:
    return EnqueueRequest("pay", {"card": card})


async def the_letter_job(storage: Storage, status: JobStatus = JobStatus.DONE) -> Job:
    """The one job of the queue for letters, once it has the status."""

    async def look() -> JobId | None:
        page = await storage.jobs.list(JobFilter(queues=(TO,)))
        return page.jobs[0].id if page.jobs else None

    job_id: JobId = await wait_until(look, description="the letter has come")
    return await job_when(storage, job_id, status)


@pytest.mark.any_store
async def test_a_handler_reads_the_letter_of_a_dead_job(storage: Storage) -> None:
    handlers, read = failing()
    runtime = a_runtime(storage, handlers).with_queues(TO, default=PARKED)
    async with runtime.start() as handle:
        outcome = await handle.enqueue(a_request(), tags=("vip",))
        origin = await ended(storage, outcome.job_id)
        job = await the_letter_job(storage)
    [(letter, letter_id)] = read
    assert (origin.status, origin.attempt) == (JobStatus.DEAD, 2)
    assert (letter.job_id, letter.queue, letter.kind) == (origin.id, "default", "pay")
    assert (letter.payload, letter.attempts) == (origin.payload, 2)
    assert (letter.cause, letter.errors) == (Cause.FAILED, origin.errors)
    assert (job.id, job.tags, job.result) == (letter_id, ("vip",), '"failed"')
    async with JobClient(storage) as client:
        found = await client.get(JobId(letter_id))
        assert found is not None
        assert dead_letter_of(found) == letter


@pytest.mark.any_store
async def test_an_encrypted_payload_is_read_by_who_has_the_key(storage: Storage) -> None:
    key = Encryption.new_key()
    handlers, read = failing(key)
    runtime = a_runtime(storage, handlers).with_queues(TO, default=PARKED)
    async with runtime.start() as handle:
        await handle.enqueue(a_request())
        job = await the_letter_job(storage)
    assert is_encrypted(job.payload)
    [(letter, _)] = read
    assert letter.payload == '{"card":"4111-1111"}'
    async with JobClient(storage, encryption=Encryption([key])) as client:
        assert dead_letter_of(client.decrypted(job)) == letter


@pytest.mark.any_store
async def test_a_payload_that_nobody_can_read_comes_as_it_is(storage: Storage) -> None:
    handlers, read = failing()
    origin = new_job(kind="pay", payload='{"card": ')
    await storage.jobs.enqueue([origin])
    runtime = a_runtime(storage, handlers).with_queues(TO, default=PARKED)
    async with runtime.start():
        job = await the_letter_job(storage)
    assert [letter.payload for letter, _ in read] == [origin.payload]
    assert job.payload == origin.payload


@pytest.mark.any_store
async def test_a_letter_without_a_handler_waits_and_is_listed(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("pay")
    async def pay(card: str) -> None:
        raise Dead("no")

    runtime = a_runtime(storage, handlers).with_queues(TO, default=PARKED)
    async with runtime.start() as handle:
        await handle.enqueue(a_request())
        job = await the_letter_job(storage, JobStatus.PENDING)

        async def is_held() -> bool:
            return (await get_job(storage, job.id)).hold is Hold.UNKNOWN_KIND

        await wait_until(is_held, description="the letter waits for a handler")
    letter = dead_letter_of(await get_job(storage, job.id))
    assert letter is not None
    assert [error.message for error in letter.errors] == ["no"]


@pytest.mark.any_store
async def test_a_job_of_that_kind_that_no_store_made_dies_with_a_reason(storage: Storage) -> None:
    handlers, read = failing()
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(EnqueueRequest(DEAD_LETTER_KIND, {}))
        job = await ended(storage, outcome.job_id)
    assert (job.status, read) == (JobStatus.DEAD, [])
    assert "is no letter of a dead job" in job.errors[-1].message


@pytest.mark.any_store
async def test_an_error_of_the_handler_shows_no_secret_of_the_dead_job(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("pay", max_attempts=1)
    async def pay(card: Annotated[str, Secret]) -> None:
        raise Dead("no")

    @handlers.job(DEAD_LETTER_KIND, max_attempts=1)
    async def park(letter: DeadLetter) -> None:
        raise Dead(f"cannot park {letter.payload}")

    runtime = a_runtime(storage, handlers).with_queues(TO, default=PARKED)
    async with runtime.start() as handle:
        await handle.enqueue(pay.request("4111-1111"))
        job = await the_letter_job(storage, JobStatus.DEAD)
    assert "4111-1111" not in repr(job.errors)
    assert "cannot park" in job.errors[-1].message


async def test_a_hook_that_fails_logs_no_secret_of_the_dead_job(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    def leaks(ctx: JobContext) -> None:
        raise ValueError(ctx.dead_letter and ctx.dead_letter.payload)

    @handlers.job("pay", max_attempts=1)
    async def pay(card: Annotated[str, Secret]) -> None:
        raise Dead("no")

    @handlers.job(DEAD_LETTER_KIND, on_done=leaks)
    async def park(letter: DeadLetter) -> None: ...

    runtime = a_runtime(storage, handlers).with_queues(TO, default=PARKED)
    async with runtime.start() as handle:
        await handle.enqueue(pay.request("4111-1111"))
        await the_letter_job(storage)
    assert "the hook " in caplog.text
    assert "ValueError" in caplog.text
    assert "4111-1111" not in caplog.text


# -- the pass -----------------------------------------------------------------------------------


class Refusing:
    """A store that does not take the jobs of some letters.

    :ivar errors: by queue or by id of the dead job
    :ivar on_call: called by each look at the letters
    :ivar skipped: letters that the calls have named to be passed over, altogether
    """

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self.errors: dict[str, StorageError] = {}
        self.is_forgetful = True
        self.calls = 0
        self.skipped = 0
        self.refusals = 0
        self.on_call: Callable[[], None] = lambda: None

    async def letters(
        self, limit: int, *, skip: Collection[str] = (), not_to: Collection[str] = ()
    ) -> list[Letter]:
        self.calls += 1
        self.skipped += len(skip)
        assert self.calls < 200, "the pass does not end"
        self.on_call()
        return await self._jobs.letters(limit, skip=skip, not_to=not_to)

    async def forget_letters(self, letters: Sequence[Letter]) -> None:
        if self.is_forgetful:
            await self._jobs.forget_letters(letters)

    async def enqueue(self, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
        for request in requests:
            for name, error in self.errors.items():
                if name == request.queue or name in request.metadata:
                    self.refusals += 1
                    raise error
        return await self._jobs.enqueue(requests)


def a_relay(jobs: Any, clock: ManualClock) -> LetterRelay:
    return LetterRelay(jobs, jobs, BisectingSender("the letter", clock=clock))


async def dead_for(storage: Storage, *queues: str) -> list[JobId]:
    """Dead jobs, with a letter each for one of the queues."""
    lease = await register(storage)
    ids = []
    for to in queues:
        await storage.config.set_queue("default", QueueChange(dead_letter=to))
        ids.append(await enqueue_one(storage))
        assert await run_one(storage, lease, dead()) == ids[-1]
    return ids


async def waiting_in(storage: Storage, queue: str) -> int:
    counts = (await storage.jobs.counts([queue])).get(queue)
    return 0 if counts is None else counts.by_status[JobStatus.PENDING]


async def test_a_queue_that_is_silent_delays_its_own_letters_only(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await dead_for(manual_storage, "away", "here", "away", "here")
    jobs = Refusing(manual_storage.jobs)
    jobs.errors["away"] = Unavailable("no answer")
    relay = a_relay(jobs, manual_clock)
    # In batches of one a silent queue must not stand at the head for ever.
    assert await relay.relay_once(batch=1) == RelayReport(2, ("away",))
    assert await waiting_in(manual_storage, "here") == 2
    jobs.errors.clear()
    assert await relay.relay_once() == RelayReport(2)
    assert await waiting_in(manual_storage, "away") == 2
    assert await manual_storage.jobs.letters(10) == []


async def test_a_letter_that_is_refused_delays_no_other(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    origins = await dead_for(manual_storage, *[TO] * 5)
    jobs = Refusing(manual_storage.jobs)
    jobs.errors[origins[1]] = StorageRefused("a trigger says no")
    relay = a_relay(jobs, manual_clock)
    assert (await relay.relay_once()).relayed == 4
    assert await waiting_in(manual_storage, TO) == 4
    assert (await relay.relay_once()).relayed == 0
    jobs.errors.clear()
    await wait_until_relayed(relay, manual_clock)
    assert await waiting_in(manual_storage, TO) == 5


async def wait_until_relayed(relay: LetterRelay, clock: ManualClock) -> None:
    for _ in range(100):
        clock.advance(SECOND)
        if (await relay.relay_once()).relayed:
            return
    raise AssertionError("the letter was never sent again")


async def test_a_source_that_forgets_nothing_holds_no_pass_for_ever(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await dead_for(manual_storage, TO, TO)
    jobs = Refusing(manual_storage.jobs)
    jobs.is_forgetful = False
    relay = a_relay(jobs, manual_clock)
    assert (await relay.relay_once(batch=1)).relayed == 2
    # Each letter comes twice: the second time the pass learns that the letter stays.
    assert jobs.calls == 5
    jobs.is_forgetful = True
    assert (await relay.relay_once()).relayed == 2
    assert await waiting_in(manual_storage, TO) == 2


async def test_what_a_pass_names_to_the_store_does_not_grow_with_the_letters_that_are_gone(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    origins = await dead_for(manual_storage, *[TO] * 40)
    jobs = Refusing(manual_storage.jobs)
    jobs.errors[origins[0]] = StorageRefused("a trigger says no")
    relay = a_relay(jobs, manual_clock)
    assert (await relay.relay_once(batch=2)).relayed == 39
    # The one that was refused, by each later call. Of those that are gone, none.
    assert 0 < jobs.skipped < jobs.calls


async def test_a_letter_that_was_refused_is_sent_once_in_a_pass(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    origins = await dead_for(manual_storage, *[TO] * 4)
    refused = Refusing(manual_storage.jobs)
    refused.errors[origins[0]] = StorageRefused("a trigger says no")
    refused.on_call = lambda: manual_clock.advance(60 * SECOND)  # each pause is over by then
    assert (await a_relay(refused, manual_clock).relay_once(batch=2)).relayed == 3
    assert refused.refusals == 2  # with another letter, and alone


async def test_nothing_to_relay_is_one_call(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    jobs = Refusing(manual_storage.jobs)
    assert await a_relay(jobs, manual_clock).relay_once() == RelayReport(0)
    assert jobs.calls == 1


@pytest.mark.long
async def test_ten_thousand_dead_jobs_leave_ten_thousand_letters(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await manual_storage.config.set_queue("default", QueueChange(dead_letter=TO))
    lease = await register(manual_storage)
    many = 10_000
    for start in range(0, many, 1_000):
        jobs = [new_job(id=new_job_id()) for _ in range(start, start + 1_000)]
        await manual_storage.jobs.enqueue(jobs)
    ended_jobs = 0
    while claimed := await claim(manual_storage, lease, limit=1_000):
        ends = [Finalization(each.claim, dead()) for each in claimed]
        assert all(await manual_storage.jobs.finalize(ends))
        ended_jobs += len(claimed)
    assert ended_jobs == many
    began = time.perf_counter()
    report = await a_relay(manual_storage.jobs, manual_clock).relay_once()
    print(f"{manual_storage.name}: {many / (time.perf_counter() - began):,.0f} letters a second")
    assert report == RelayReport(many)
    assert await waiting_in(manual_storage, TO) == many
