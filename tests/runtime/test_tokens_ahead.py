"""Tokens of claims that are held ahead: taken with the claim, used when the job begins."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from forge_jobs import HandlerRegistry, JobClient, Rate, RateLimit
from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.payloads import ENCRYPTED_START
from forge_jobs.model.queues import RateAsk, TokenGrant
from forge_jobs.runtime.shared.rates import ahead
from forge_jobs.runtime.shared.rates.ahead import AHEAD, FEWEST, TokensAhead
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.storage.protocols import Storage
from tests.support.factories import a_claimed_job
from tests.support.runtimes import a_runtime, ended, quick_settings

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
Asks = list[Sequence[RateAsk]]


@pytest.fixture
def clock() -> ManualClock:
    """The pod's."""
    return ManualClock()


@pytest.fixture
def asked(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Asks:
    """The requests of each call for tokens."""
    calls: Asks = []
    take = type(storage.config).take_or_turn

    async def noted(
        self: Any, asks: Sequence[RateAsk], within: timedelta
    ) -> list[TokenGrant | None]:
        calls.append(asks)
        return await take(self, asks, within)

    monkeypatch.setattr(type(storage.config), "take_or_turn", noted)
    return calls


class Pod:
    """The tokens of a pod whose handler ``mail`` declares a rate."""

    def __init__(self, storage: Storage, clock: ManualClock, rate: Rate, **options: Any) -> None:
        handlers = HandlerRegistry()

        async def mail(customer: str = "") -> None: ...

        handlers.register(mail, "mail", rate=rate, **options)
        self._clock = clock
        self.limiter = RateLimiter(storage.config, clock=clock)
        self.tokens = TokensAhead(self.limiter, handlers, clock)

    async def has_token(self, job: ClaimedJob) -> bool:
        return await self.tokens.taken(job.claim.job_id)

    def takes_token(self, job: ClaimedJob) -> bool:
        return self.tokens.take(job.claim.job_id, self._clock.elapsed())


def mails(count: int, **values: Any) -> list[ClaimedJob]:
    return [a_claimed_job(kind="mail", payload='{"customer":"c"}', **values) for _ in range(count)]


async def available(storage: Storage) -> int:
    [limit] = await storage.config.rate_limits()
    return limit.available


async def test_a_backlog_takes_its_tokens_with_its_claims(
    storage: Storage, asked: Asks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is, no job begins too late for its token, and none is given back.
    monkeypatch.setattr(ahead, "AHEAD", MINUTE)
    monkeypatch.setattr(ahead, "START_PATIENCE", MINUTE.total_seconds())
    settings = quick_settings(claim_ahead=MINUTE)
    ran: list[str] = []
    handlers = HandlerRegistry()

    async def mail(customer: str) -> None:
        ran.append(customer)

    sent = handlers.register(mail, "mail", rate=Rate(FEWEST, per=HOUR, key="{customer}"))
    async with JobClient(storage) as client:
        outcomes = await client.enqueue_many([sent.request(f"{n % 2}") for n in range(60)])
    async with a_runtime(storage, handlers, workers=4, settings=settings).start():
        for outcome in outcomes:
            await ended(storage, outcome.job_id)
    assert len(ran) == 60
    asks = [ask for call in asked for ask in call]
    assert len(asks) == 60
    assert {ask.ahead for ask in asks} <= {MINUTE, timedelta(0)}
    assert MINUTE in {ask.ahead for ask in asks}


async def test_a_token_is_for_one_run_that_begins_in_time(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.config.ensure_rate_limit("mail", RateLimit(FEWEST, per=HOUR))
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    first, second, third = mails(3)
    pod.tokens.ask([first, second])
    assert await pod.has_token(first)
    assert not pod.takes_token(first)
    assert not await pod.has_token(third)

    clock.advance(AHEAD)
    assert not pod.takes_token(second)


@pytest.mark.parametrize("begins", [True, False])
async def test_after_a_job_that_was_late_no_token_is_taken_ahead_for_a_second(
    storage: Storage, clock: ManualClock, asked: Asks, *, begins: bool
) -> None:
    await storage.config.ensure_rate_limit("mail", RateLimit(FEWEST, per=HOUR))
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    first, second, third, fourth = mails(4)
    pod.tokens.ask([first, second])
    assert await pod.has_token(second)
    clock.advance(AHEAD)
    if begins:
        assert [pod.takes_token(job) for job in (first, second)] == [False, False]

    pod.tokens.ask([third])
    assert not await pod.has_token(third)
    assert len(asked) == 1
    clock.advance(timedelta(seconds=1))
    pod.tokens.ask([fourth])
    assert await pod.has_token(fourth)


async def test_the_time_of_a_token_counts_from_the_question(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storage.config.ensure_rate_limit("mail", RateLimit(FEWEST, per=HOUR))
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    take = type(storage.config).take_or_turn

    async def slow(self: Any, *values: Any) -> object:
        grants = await take(self, *values)
        clock.advance(AHEAD)
        return grants

    monkeypatch.setattr(type(storage.config), "take_or_turn", slow)
    [job] = mails(1)
    pod.tokens.ask([job])
    assert not await pod.has_token(job)


async def test_a_limit_with_few_tokens_is_left_alone_for_a_second(
    storage: Storage, clock: ManualClock, asked: Asks
) -> None:
    # An operator has set another size than the handler declares.
    await storage.config.set_rate_limit("mail", RateLimit(4, per=HOUR))
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    jobs = mails(3)
    pod.tokens.ask(jobs)
    assert [await pod.has_token(job) for job in jobs] == [True, False, False]
    assert await available(storage) == 2

    [job] = mails(1)
    pod.tokens.ask([job])
    assert not await pod.has_token(job)
    assert len(asked) == 1
    clock.advance(timedelta(seconds=1))
    pod.tokens.ask([job])
    await pod.has_token(job)
    assert len(asked) == 2


async def test_no_answer_is_no_token_and_no_error(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> None:
        raise Unavailable("the store is away")

    monkeypatch.setattr(type(storage.config), "take_or_turn", down)
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    [job] = mails(1)
    pod.tokens.ask([job])
    assert not await pod.has_token(job)


async def test_a_silent_store_keeps_no_job_from_asking_itself(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def silent(*_: object) -> list[TokenGrant | None]:
        await never.wait()
        return [TokenGrant(True, timedelta(0))]

    monkeypatch.setattr(type(storage.config), "take_or_turn", silent)
    monkeypatch.setattr(ahead, "START_PATIENCE", 0.0)
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    [job] = mails(1)
    pod.tokens.ask([job])
    async with asyncio.timeout(20):
        assert not await pod.has_token(job)
    never.set()


async def test_what_is_not_asked_for_ahead(
    storage: Storage, clock: ManualClock, asked: Asks
) -> None:
    await storage.config.ensure_rate_limit("mail", RateLimit(FEWEST, per=HOUR))
    pod = Pod(storage, clock, Rate(FEWEST, per=HOUR))
    [waited], [cancelled] = mails(1, rate_limit="mail"), mails(1, cancel_requested=True)
    pod.tokens.ask([waited, cancelled])

    assert pod.tokens.serves
    assert not Pod(storage, clock, Rate(FEWEST - 1, per=HOUR)).tokens.serves

    # The key of the bucket is in a text that only the run decrypts.
    by_customer = Pod(storage, clock, Rate(FEWEST, per=HOUR, key="{customer}"))
    [encrypted] = mails(1)
    by_customer.tokens.ask([structs.replace(encrypted, payload=f"{ENCRYPTED_START}...")])
    assert by_customer.tokens.serves
    assert not await by_customer.has_token(encrypted)
    assert asked == []
