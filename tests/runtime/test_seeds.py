"""Seeded handlers: one job at any time, brought back when lost, and not when stopped."""

import asyncio
from collections.abc import Generator
from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.errors import RegistrationError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Again
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, is_seed_id, new_job_id, seed_job_id
from forge_jobs.model.jobs import Cause, EnqueueOutcome, Job, JobStatus, Unique
from forge_jobs.model.queues import QueueSettings, Retention
from forge_jobs.model.transitions import Transition
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.policy.seeds import REVIVED_AFTER, is_lost
from forge_jobs.runtime.passes import seeds
from forge_jobs.runtime.passes.seeds import Seeding, seed_once, seeded
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    again,
    claim_one,
    cleaned_up,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    only,
    register,
)
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio
SEED = seed_job_id("tests.noop")
ALL = JobFilter()


def noops(**options: object) -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("tests.noop", seed={"page": 1}, **options)  # type: ignore[arg-type]
    async def noop(page: int) -> None: ...

    return handlers


async def sow(storage: Storage, handlers: HandlerRegistry) -> Seeding:
    async with JobClient(storage, handlers) as client:
        return await seed_once(storage, client, seeded(handlers))


async def jobs_of(storage: Storage) -> list[Job]:
    summaries = (await storage.jobs.list(ALL, limit=100)).jobs
    return list((await storage.jobs.get([each.id for each in summaries])).values())


async def ended_as(storage: Storage, transition: Transition) -> None:
    claimed = await claim_one(storage, await register(storage))
    assert claimed.claim.job_id == SEED
    assert await finish(storage, claimed, transition)


async def first_pass(handle: QueueHandle) -> None:
    """Wait until the pod has looked for its seeded jobs."""
    [loop] = [each for each in handle._pod.loops.all if each.name == "seeds"]
    await wait_until(lambda: loop.last_success, description="the pod has looked for its jobs")


async def test_sixteen_pods_at_once_make_one_job(manual_storage: Storage) -> None:
    answers = await asyncio.gather(*(sow(manual_storage, noops()) for _ in range(16)))

    [job] = await jobs_of(manual_storage)
    assert (job.id, job.payload) == (SEED, '{"page":1}')
    assert any(each.enqueued for each in answers)
    assert await sow(manual_storage, noops()) == Seeding()


async def test_a_chain_that_goes_on_is_left_alone(manual_storage: Storage) -> None:
    await sow(manual_storage, noops())
    claimed = await claim_one(manual_storage, await register(manual_storage))
    assert await sow(manual_storage, noops()) == Seeding()
    await finish(manual_storage, claimed, again(claimed, '{"page": 2}', after=DAY))
    assert await sow(manual_storage, noops()) == Seeding()
    assert (await get_job(manual_storage, SEED)).payload == '{"page": 2}'


async def test_a_deleted_job_is_seeded_anew(manual_storage: Storage) -> None:
    await sow(manual_storage, noops())
    await manual_storage.jobs.delete(only(SEED))
    assert await sow(manual_storage, noops()) == Seeding(enqueued=(SEED,))


async def test_a_dead_job_goes_on_after_a_while_where_it_was(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await sow(manual_storage, noops())
    claimed = await claim_one(manual_storage, await register(manual_storage))
    await finish(manual_storage, claimed, again(claimed, '{"page": 2}'))
    await ended_as(manual_storage, dead())
    assert await sow(manual_storage, noops()) == Seeding()
    manual_clock.advance(REVIVED_AFTER.total_seconds() - 1)
    assert await sow(manual_storage, noops()) == Seeding()
    manual_clock.advance(1)
    answers = await asyncio.gather(*(sow(manual_storage, noops()) for _ in range(4)))
    assert [each.requeued for each in answers].count((SEED,)) == 1
    job = await get_job(manual_storage, SEED)
    assert (job.status, job.attempt, job.payload) == (JobStatus.PENDING, 0, '{"page": 2}')


@pytest.mark.parametrize(
    "how",
    [
        done(),
        Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED),
        Transition(status=JobStatus.DEAD, cause=Cause.REJECTED),
        Transition(status=JobStatus.DEAD, cause=Cause.CRASHED),
    ],
    ids=["done", "cancelled", "rejected", "crashed"],
)
async def test_a_job_that_has_stopped_stays_so_beyond_its_retention(
    manual_storage: Storage, manual_clock: ManualClock, how: Transition
) -> None:
    kept = Retention(done=DAY, dead=DAY, cancelled=DAY, max_done=0, max_dead=0, max_cancelled=0)
    await manual_storage.config.ensure_queue(QUEUE, QueueSettings(retention=kept))
    await sow(manual_storage, noops())
    await ended_as(manual_storage, how)
    lease = await register(manual_storage)
    others = [await enqueue_one(manual_storage) for _ in range(3)]
    for _ in others:
        await finish(manual_storage, await claim_one(manual_storage, lease), how)
    for _ in range(3):
        manual_clock.advance(DAY.total_seconds() * 40)
        await cleaned_up(manual_storage, batch=1)
        assert await sow(manual_storage, noops()) == Seeding()
    assert [job.id for job in await jobs_of(manual_storage)] == [SEED]
    if how.status is not JobStatus.DONE:
        await manual_storage.jobs.requeue(only(SEED))
        assert (await claim_one(manual_storage, await register(manual_storage))).attempt == 1


async def test_other_arguments_and_options_change_nothing_while_the_job_is_there(
    manual_storage: Storage,
) -> None:
    await sow(manual_storage, noops())
    other = HandlerRegistry()

    @other.job("tests.noop", seed={"page": 7}, priority=5, queue="elsewhere")
    async def noop(page: int) -> None: ...

    assert await sow(manual_storage, other) == Seeding()
    async with JobClient(manual_storage, other) as client:
        # As in a race with a pod of another release.
        await manual_storage.jobs.states([SEED])
        assert not await seeds._enqueue(client, SEED, noop)
    [job] = await jobs_of(manual_storage)
    assert (job.payload, job.queue) == ('{"page":1}', QUEUE)


async def test_a_pod_that_starts_seeds_and_a_chain_stops_itself(storage: Storage) -> None:
    handlers = HandlerRegistry()
    runs: list[tuple[JobId, int]] = []

    @handlers.job("tests.chain", seed=True, queue=QUEUE)
    async def chain(ctx: JobContext) -> object:
        runs.append((ctx.job_id, ctx.occurrence))
        return Again() if ctx.occurrence < 5 else "stopped"

    for _ in range(2):
        async with (
            a_runtime(storage, handlers).start() as first,
            a_runtime(storage, handlers).start() as second,
        ):
            job = await ended(storage, seed_job_id("tests.chain"))
            for handle in (first, second):
                await first_pass(handle)
        assert (job.status, job.result) == (JobStatus.DONE, '"stopped"')
    assert runs == [(job.id, number) for number in range(1, 6)]


@pytest.mark.any_store
async def test_without_seeds_there_is_no_loop(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("plain")
    async def plain() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        assert "seeds" not in {each.name for each in handle._pod.loops.all}


def test_a_seed_that_does_not_fit_is_refused_at_registration() -> None:
    handlers = HandlerRegistry()

    def pages(page: int) -> None: ...

    with pytest.raises(RegistrationError, match=r"pages: seed: .*page"):
        handlers.register(pages, "pages", seed=True)
    with pytest.raises(RegistrationError, match=r"pages: seed: pages\.page"):
        handlers.register(pages, "pages", seed={"page": "one"})
    with pytest.raises(RegistrationError, match="pages: seed: is a list"):
        handlers.register(pages, "pages", seed=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["keep", "error", "replace", "keep-last"])
def test_a_seed_with_a_unique_key_is_refused_at_registration(mode: UniqueMode) -> None:
    with pytest.raises(RegistrationError, match=r"tests\.noop: seed: .*unique.* leave out one"):
        noops(unique=Unique("key", mode=mode))
    noops(unique=None)


@pytest.mark.any_store
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "01M84KWBBG4QCPPRSEV2Q79YZP"),
        ("id", seed_job_id("another")),
        ("id", None),
        ("queue", "elsewhere"),
        ("unique", Unique("key", mode="replace")),
        ("unique_key", "key"),
        ("after", ("01M84KWBBG4QCPPRSEV2Q79YZP",)),
    ],
    ids=["id", "other seed", "no id", "queue", "unique", "unique_key", "after"],
)
async def test_what_makes_a_seed_the_one_that_pods_look_for_is_no_middlewares_to_change(
    manual_storage: Storage, caplog: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    holder = await enqueue_one(manual_storage, unique=Unique("key", mode="replace"))

    def redirects(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
        yield structs.replace(request, **{field: value})

    handlers = noops(enqueue_middleware=[redirects])
    assert await sow(manual_storage, handlers) == Seeding()
    assert [job.id for job in await jobs_of(manual_storage)] == [holder]
    assert f"seeded job {SEED} of tests.noop is not there" in caplog.text
    assert f"{field}: of the seeded job" in caplog.text
    assert "redirects" in caplog.text
    # A program that enqueues a job of the kind may have all of that changed.
    other = enqueue_request(handlers).options(id=new_job_id())
    async with JobClient(manual_storage, handlers) as client:
        if field not in ("id", "after"):
            assert await client.enqueue(other)


def enqueue_request(handlers: HandlerRegistry) -> EnqueueRequest:
    handler = handlers.get("tests.noop")
    assert handler is not None
    return handler.request(page=1)


@pytest.mark.any_store
async def test_a_middleware_may_change_what_the_seed_brings(manual_storage: Storage) -> None:
    def adds(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
        yield request.options(priority=7, tags=("seeded",), metadata={"from": "audit"}, delay=60)

    handlers = noops(enqueue_middleware=[adds])
    assert await sow(manual_storage, handlers) == Seeding((SEED,))
    assert await sow(manual_storage, handlers) == Seeding()
    job = await get_job(manual_storage, SEED)
    assert (job.priority, job.tags, job.metadata["from"]) == (7, ("seeded",), "audit")


async def test_a_middleware_that_refuses_a_seed_keeps_no_other_seed_waiting(
    manual_storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
        raise PermissionError("not in this region")
        yield request

    handlers = noops(enqueue_middleware=[refuses])

    @handlers.job("other", seed=True)
    async def other() -> None: ...

    assert await sow(manual_storage, handlers) == Seeding((seed_job_id("other"),))
    assert "not in this region" in caplog.text


def test_ids_of_seeds() -> None:
    assert seed_job_id("a") == seed_job_id("a") != seed_job_id("b")
    assert is_seed_id(seed_job_id("a"))
    assert not is_seed_id(new_job_id())


@pytest.mark.parametrize(
    ("status", "cause", "ended_for", "lost"),
    [
        (JobStatus.PENDING, Cause.SUCCEEDED, DAY, False),
        (JobStatus.FAILED, Cause.FAILED, DAY, False),
        (JobStatus.DONE, Cause.SUCCEEDED, DAY, False),
        (JobStatus.CANCELLED, Cause.EXPIRED, DAY, False),
        (JobStatus.DEAD, Cause.REJECTED, DAY, False),
        (JobStatus.DEAD, Cause.CRASHED, DAY, False),
        (JobStatus.DEAD, Cause.FAILED, REVIVED_AFTER - SECOND, False),
        (JobStatus.DEAD, Cause.TIMED_OUT, REVIVED_AFTER, True),
        (JobStatus.DEAD, Cause.SNOOZED, DAY, True),
    ],
)
def test_which_jobs_are_lost(
    status: JobStatus, cause: Cause, ended_for: timedelta, *, lost: bool
) -> None:
    assert is_lost(status, cause, ended_for) is lost
