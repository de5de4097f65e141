"""Rate limits that handlers declare: no job starts without its token, and waiting costs nothing."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, JobCancelled, JobClient, Rate, RateLimit
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.queues import RateAsk, TokenGrant
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, job_because
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

HOUR = 3600


threads, processes = HandlerRegistry(), HandlerRegistry()


def plain() -> int:
    """Run in a thread or a process."""
    return 1


threads.register(plain, "plain", rate=Rate(1, per=HOUR))
processes.register(plain, "plain", rate=Rate(1, per=HOUR), executor="process")


class Shop:
    """The kind ``mail`` under a rate, and what has run."""

    def __init__(self, rate: Rate, **options: Any) -> None:
        self.ran: Counter[str] = Counter()
        self.handlers = HandlerRegistry()

        async def mail(customer: str) -> str:
            self.ran[customer] += 1
            return customer

        self.mail = self.handlers.register(mail, "mail", rate=rate, **options)


async def settled(storage: Storage, ids: Sequence[JobId]) -> list[Job]:
    """Return the jobs once none waits to be looked at."""

    async def none_is_new() -> list[Job] | None:
        jobs = [*(await storage.jobs.get(ids)).values()]
        is_new = any(
            job.cause is Cause.ENQUEUED or job.status is JobStatus.IN_PROGRESS for job in jobs
        )
        return None if is_new else jobs

    jobs: list[Job] = await wait_until(none_is_new, description="each job has run or waits")
    return jobs


def causes(jobs: Sequence[Job]) -> Counter[Cause]:
    return Counter(job.cause for job in jobs)


async def test_each_key_has_its_tokens_and_the_rest_waits_without_a_slot(storage: Storage) -> None:
    shop = Shop(Rate(2, per=HOUR, key="{customer}"), max_attempts=1)
    async with a_runtime(storage, shop.handlers).start() as handle:
        requests = [shop.mail.request(customer) for customer in "abacabaa"]
        ids = [each.job_id for each in await handle.enqueue_many(requests)]
        jobs = await settled(storage, ids)
    assert shop.ran == {"a": 2, "b": 2, "c": 1}
    assert causes(jobs) == {Cause.SUCCEEDED: 5, Cause.RATE_LIMITED: 3}
    for job in jobs:
        if job.cause is Cause.SUCCEEDED:
            continue
        assert (job.status, job.attempt, job.snoozes, job.rate_limit) == (
            *(JobStatus.PENDING, 0, 0),
            "mail",
        )


async def test_a_job_runs_when_its_turn_has_come(storage: Storage) -> None:
    shop = Shop(Rate(1, per=0.05))
    async with a_runtime(storage, shop.handlers).start() as handle:
        requests = [shop.mail.request(f"{n}") for n in range(6)]
        for outcome in await handle.enqueue_many(requests):
            job = await ended(storage, outcome.job_id)
            assert (job.status, job.attempt) == (JobStatus.DONE, 1)
    assert shop.ran.total() == 6


async def test_a_job_says_at_its_turn_that_it_has_waited(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[bool]()
    take = type(storage.config).take_or_turn

    async def noted(self: Any, asks: Sequence[RateAsk], within: timedelta) -> object:
        asked.update(ask.had_turn for ask in asks)
        return await take(self, asks, within)

    monkeypatch.setattr(type(storage.config), "take_or_turn", noted)
    shop = Shop(Rate(1, per=0.5))
    async with a_runtime(storage, shop.handlers).start() as handle:
        outcomes = await handle.enqueue_many([shop.mail.request(f"{n}") for n in range(4)])
        for outcome in outcomes:
            await ended(storage, outcome.job_id)
    assert asked[False] == 4
    assert asked[True] >= 3


async def test_what_finds_no_token_may_be_dropped(storage: Storage) -> None:
    shop = Shop(Rate(1, per=HOUR, mode="drop"))
    async with a_runtime(storage, shop.handlers).start() as handle:
        first, second = await handle.enqueue_many([shop.mail.request(each) for each in "ab"])
        jobs = [await ended(storage, each.job_id) for each in (first, second)]
        dropped = next(job for job in jobs if job.status is JobStatus.CANCELLED)
        with pytest.raises(JobCancelled, match="was dropped, because its rate limit had no token"):
            await handle.result(dropped.id, timeout=10)
    assert dropped.cause is Cause.DROPPED
    assert dropped.errors == ()
    assert shop.ran.total() == 1


@pytest.mark.parametrize("mode", ["defer", "drop"])
async def test_while_the_store_gives_no_answer_a_job_neither_runs_nor_is_dropped(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    async def down(*_: object) -> list[TokenGrant | None]:
        raise Unavailable("the store is away")

    shop = Shop(Rate(5, mode=mode))
    async with a_runtime(storage, shop.handlers).start() as handle:
        monkeypatch.setattr(type(storage.config), "take_or_turn", down)
        outcome = await handle.enqueue(shop.mail.request("a"))
        job = await job_because(storage, outcome.job_id, Cause.RATE_LIMITED)
        assert (job.status, job.attempt, shop.ran.total()) == (JobStatus.PENDING, 0, 0)


async def test_an_operators_size_holds_and_a_deleted_limit_is_declared_again(
    storage: Storage,
) -> None:
    shop = Shop(Rate(1, per=HOUR, key="{customer}"))
    async with a_runtime(storage, shop.handlers).start() as handle:
        await storage.config.set_rate_limit("mail", RateLimit(3, per=HOUR))
        requests = [shop.mail.request("a") for _ in range(5)]
        ids = [each.job_id for each in await handle.enqueue_many(requests)]
        await settled(storage, ids)
        assert shop.ran == {"a": 3}
        await storage.config.delete_rate_limit("mail")
        outcome = await handle.enqueue(shop.mail.request("b"))
        await ended(storage, outcome.job_id)
        assert [
            (each.scope, each.limit.capacity) for each in await storage.config.rate_limits()
        ] == [("mail", 1)]


@pytest.mark.parametrize("registry", ["threads", "processes"])
async def test_threads_and_processes_ask_first_too(storage: Storage, registry: str) -> None:
    handlers: HandlerRegistry = globals()[registry]
    async with a_runtime(storage, handlers).start() as handle:
        [work] = handlers
        ids = [each.job_id for each in await handle.enqueue_many([work.request()] * 2)]
        found = causes(await settled(storage, ids))
        assert found == {Cause.SUCCEEDED: 1, Cause.RATE_LIMITED: 1}


async def test_jobs_that_start_together_share_calls(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    take = type(storage.config).take_or_turn

    async def counted(
        self: Any, asks: Sequence[RateAsk], within: timedelta
    ) -> list[TokenGrant | None]:
        sizes.append(len(asks))
        return await take(self, asks, within)

    monkeypatch.setattr(type(storage.config), "take_or_turn", counted)
    shop = Shop(Rate(1, per=HOUR, key="{customer}"))
    async with a_runtime(storage, shop.handlers, workers=50).start() as handle:
        requests = [shop.mail.request(f"{n}") for n in range(200)]
        for outcome in await handle.enqueue_many(requests):
            await ended(storage, outcome.job_id)
    assert shop.ran.total() == sum(sizes) == 200
    assert len(sizes) <= 40


async def test_a_payload_that_cannot_be_decoded_is_the_jobs_own_failure(storage: Storage) -> None:
    shop = Shop(Rate(1, per=HOUR, key="{customer}"), max_attempts=1)
    producer_knows_nothing = EnqueueRequest("mail", {"customer": 7})
    async with a_runtime(storage, shop.handlers).start():
        client = JobClient(storage)
        outcome = await client.enqueue(producer_knows_nothing, max_attempts=1)
        job = await ended(storage, outcome.job_id)
        await client.aclose()
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED)
