"""A client judges what it enqueues: before the payload is encrypted, and with no claim at all."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from forge_jobs import (
    EnqueueRequest,
    HandlerRegistry,
    JobClient,
    JobContext,
    SyncJobClient,
    open_storage,
)
from forge_jobs.clients import strikes
from forge_jobs.clients.schedules import ensure_schedules, schedule
from forge_jobs.errors import Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, EnqueueOutcome, Hold, Job, JobStatus, Unique
from forge_jobs.model.strikes import Effect, StrikeRule
from forge_jobs.policy.explanations import Reason
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import Storage
from tests.runtime.test_strikes import Shop, an_operator, stored
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

MAIL = StrikeRule(kind="mail", reason="the provider is down")
SEVEN = StrikeRule(where="amount == 7")
FRAUD = StrikeRule(where="amount == 13", effect=Effect.CANCEL)


async def set_all(storage: Storage) -> None:
    for name, rule in {"no mail": MAIL, "seven": SEVEN, "fraud": FRAUD}.items():
        await storage.config.put_strike(name, rule, "ada")


async def is_held(storage: Storage, outcome: EnqueueOutcome, by: str) -> bool:
    job = await stored(storage, outcome.job_id)
    told = (job.hold, job.cause, job.struck_by, job.claimed_at)
    return told == (Hold.STRUCK, Cause.STRUCK, by, None) and outcome.struck_by == by


def count_readings(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    readings: list[int] = []
    answer: Any = type(storage.config).strikes

    async def counted(self: Any) -> Any:
        readings.append(1)
        return await answer(self)

    monkeypatch.setattr(type(storage.config), "strikes", counted)
    return readings


async def test_each_way_to_enqueue_is_judged(storage: Storage) -> None:
    shop = Shop()
    await set_all(storage)
    async with JobClient(storage, shop.handlers) as client:
        one = await client.enqueue(shop.mail.request("a"))
        by_kind = await client.enqueue(EnqueueRequest("pay", {"amount": 7}, queue="default"))
        seven, fraud, fine = await client.enqueue_many(
            [shop.pay.request(amount) for amount in (7, 13, 1)]
        )
        assert await is_held(storage, one, "no mail")
        assert await is_held(storage, by_kind, "seven")
        assert await is_held(storage, seven, "seven")
        assert fine.struck_by is None
        job = await stored(storage, fraud.job_id)
        assert (job.status, job.cause, job.attempt) == (JobStatus.CANCELLED, Cause.STRUCK, 0)
        assert job.errors[-1].message == "the strike 'fraud' of ada cancels it"
        assert fraud.struck_by == "fraud"
        told = await client.explain(one.job_id)
        assert told.reason is Reason.STRUCK
        assert "held by the strike 'no mail' of ada: the provider is down" in told.text
        assert told.since == (await stored(storage, one.job_id)).enqueued_at
        assert "cancelled: the strike 'fraud'" in (await client.explain(fraud.job_id)).text
    async with an_operator(storage) as ada:
        assert await is_held(storage, await ada.enqueue(shop.mail.request("b")), "no mail")
        await ada.lift_strike("no mail")
        async with a_runtime(storage, shop.handlers).start():
            await ended(storage, one.job_id)
            await ended(storage, fine.job_id)
    assert (shop.ran["mail a"], shop.ran["pay 1"], shop.ran["pay 7"]) == (1, 1, 0)


def test_a_blocking_client_judges_also_in_a_transaction(tmp_path: Path) -> None:
    shop, url = Shop(), f"sqlite:///{tmp_path}/app.db"

    async def strike(*names: str) -> None:
        storage = await open_storage(url)
        for name in names:
            await storage.config.put_strike(name, MAIL, "ada")
        await storage.aclose()

    asyncio.run(strike("no mail"))
    with SyncJobClient(lambda: open_storage(url), shop.handlers) as client:
        engine = create_engine(url)
        with engine.begin() as connection:
            inside = client.enqueue(shop.mail.request("a"), connection=connection)
            fine = client.enqueue(shop.pay.request(1), connection=connection)
        engine.dispose()
        alone = client.enqueue(shop.mail.request("b"))
        many = client.enqueue_many([shop.mail.request("c"), shop.pay.request(1)])
        assert [each.struck_by for each in (inside, fine, alone, *many)] == [
            "no mail", None, "no mail", "no mail", None,
        ]  # fmt: skip
        holds = [client.get(each.job_id).hold for each in (inside, fine, alone, *many)]  # type: ignore[union-attr]
        assert holds == [Hold.STRUCK, None, Hold.STRUCK, Hold.STRUCK, None]


async def test_an_encrypted_payload_is_judged_where_no_pod_has_the_key(storage: Storage) -> None:
    shop = Shop(Encryption.new_key())
    await set_all(storage)
    async with JobClient(storage, shop.handlers) as client:
        seven, fraud, fine = await client.enqueue_many(
            [shop.pay.request(amount) for amount in (7, 13, 1)]
        )
        alone = await client.enqueue(shop.pay.request(7))
        assert await is_held(storage, seven, "seven")
        assert await is_held(storage, alone, "seven")
        held = await stored(storage, seven.job_id)
        assert "7" not in held.payload or "amount" not in held.payload
        assert client.decrypted(held).payload == '{"amount":7}'
    assert (await stored(storage, fraud.job_id)).status is JobStatus.CANCELLED
    assert (await stored(storage, fine.job_id)).hold is None


async def test_the_content_of_a_repeat_is_the_same_with_and_without_a_strike(
    storage: Storage,
) -> None:
    shop = Shop()
    async with JobClient(storage, shop.handlers) as client:
        request = shop.mail.request("a").options(id=client.prepare(shop.mail.request("a")).id)
        await client.enqueue(request)
        await set_all(storage)
    async with JobClient(storage, shop.handlers) as client:
        again = await client.enqueue(request)
        assert (again.job_id, again.deduplicated) == (request.id, False)
        assert (await stored(storage, again.job_id)).hold is None


async def test_a_duplicate_is_not_said_to_be_struck(storage: Storage) -> None:
    shop = Shop()
    await set_all(storage)
    async with JobClient(storage, shop.handlers) as client:
        wanted = [shop.mail.request("a").options(unique=Unique("k")) for _ in range(2)]
        first, second = await client.enqueue_many(wanted)
        assert await is_held(storage, first, "no mail")
        assert (second.deduplicated, second.struck_by) == (True, None)


async def test_a_client_without_strikes_reads_once_and_then_beside_its_calls(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    readings = count_readings(storage, monkeypatch)
    monkeypatch.setattr(strikes, "READ_EVERY", timedelta(hours=1))
    async with JobClient(storage, shop.handlers) as client:
        for _ in range(3):
            await client.enqueue(shop.pay.request(1))
            await client.enqueue_many([shop.pay.request(1), shop.pay.request(1)])
        assert len(readings) == 1
    monkeypatch.setattr(strikes, "READ_EVERY", timedelta(milliseconds=1))
    async with JobClient(storage, shop.handlers) as client:
        await client.enqueue(shop.mail.request("a"))
        await set_all(storage)

        async def judged() -> EnqueueOutcome | None:
            outcome = await client.enqueue(shop.mail.request("a"))
            return outcome if outcome.struck_by else None

        outcome: EnqueueOutcome = await wait_until(judged, description="the client has read again")
        assert await is_held(storage, outcome, "no mail")


async def test_a_strike_that_was_lifted_meanwhile_holds_nothing(storage: Storage) -> None:
    shop = Shop()
    await set_all(storage)
    async with JobClient(storage, shop.handlers) as client:
        assert (await client.enqueue(shop.mail.request("a"))).struck_by == "no mail"
        await storage.config.lift_strike("no mail")
        after = await client.enqueue(shop.mail.request("b"))
        assert after.struck_by is None
        assert (await stored(storage, after.job_id)).hold is None


async def test_what_cannot_be_read_lets_jobs_through(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    await set_all(storage)

    async def fails(self: Any) -> Any:
        raise Unavailable("the store is away")

    with monkeypatch.context() as broken:
        broken.setattr(type(storage.config), "strikes", fails)
        async with JobClient(storage, shop.handlers) as client:
            outcome = await client.enqueue(shop.mail.request("a"))
    assert outcome.struck_by is None
    assert (await stored(storage, outcome.job_id)).hold is None


async def test_follow_ups_of_handlers_and_jobs_of_schedules_are_judged(storage: Storage) -> None:
    handlers = HandlerRegistry()

    async def mail() -> None:
        raise AssertionError("a struck job ran")

    struck = handlers.register(mail, "mail")

    async def begin(ctx: JobContext) -> str:
        outcome = await ctx.enqueue(struck.request())
        return f"{outcome.job_id} {outcome.struck_by}"

    first = handlers.register(begin, "begin")
    await storage.config.put_strike("no mail", StrikeRule(kind="mail"), "ada")
    await ensure_schedules(storage.cron, [schedule("often", struck.request(), "@every 1s")])
    async with a_runtime(storage, handlers).start() as handle:
        told = await handle.result((await handle.enqueue(first.request())).job_id, 30, str)
        job_id, by = told.split(" ", 1)
        job = await stored(storage, JobId(job_id))
        assert (job.hold, job.claimed_at, by) == (Hold.STRUCK, None, "no mail")

        async def fired() -> Job | None:
            page = await storage.jobs.list(JobFilter(schedule="often"), limit=1)
            return await stored(storage, page.jobs[0].id) if page.jobs else None

        job = await wait_until(fired, description="the schedule has fired")
        assert (job.hold, job.struck_by, job.claimed_at) == (Hold.STRUCK, "no mail", None)
        async with an_operator(storage) as ada:
            assert await is_held(storage, await ada.trigger_schedule("often"), "no mail")
