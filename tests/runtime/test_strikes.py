"""Strikes keep jobs from running: held or cancelled before the run, and released by a lift."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, JobClient
from forge_jobs.clients.strikes import Strikes
from forge_jobs.errors import NotFound, Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold, Job, JobStatus
from forge_jobs.model.strikes import Effect, Strike, StrikeRule
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.policy.explanations import Reason
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import Storage
from tests.support.factories import counters
from tests.support.runtimes import a_runtime, ended, job_because
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def older_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients know of no strike, so that pods judge each job."""
    monkeypatch.setattr(Strikes, "_judged", lambda _, job: job)


class Shop:
    """The kinds ``pay`` and ``mail``, and what has run."""

    def __init__(self, key: str | None = None) -> None:
        self.ran: Counter[str] = Counter()
        encryption = Encryption([key]) if key else None
        self.handlers = HandlerRegistry(encryption=encryption)

        async def pay(amount: int) -> None:
            self.ran[f"pay {amount}"] += 1

        def mail(to: str) -> None:
            self.ran[f"mail {to}"] += 1

        self.pay = self.handlers.register(pay, "pay", max_attempts=1)
        self.mail = self.handlers.register(mail, "mail", max_attempts=1)


@asynccontextmanager
async def an_operator(storage: Storage) -> AsyncIterator[Operator]:
    async with Operator(storage, Actor(name="ada", access=ALL)) as operator:
        yield operator


async def stored(storage: Storage, job_id: JobId) -> Job:
    [job] = (await storage.jobs.get([job_id])).values()
    return job


async def test_a_struck_kind_is_held_without_an_attempt_and_others_run(storage: Storage) -> None:
    shop = Shop()
    async with an_operator(storage) as ada:
        await ada.add_strike("no mail", StrikeRule(kind="mail", reason="the provider is down"))
        async with a_runtime(storage, shop.handlers).start() as handle:
            mail, pay = await handle.enqueue_many([shop.mail.request("a"), shop.pay.request(5)])
            await ended(storage, pay.job_id)
            job = await job_because(storage, mail.job_id, Cause.STRUCK)
            assert (job.status, job.attempt, job.errors) == (JobStatus.PENDING, 0, ())
            assert job.struck_by == "no mail"
            told = await ada.explain_job(job.id)
            assert told.reason is Reason.STRUCK
            assert "held by the strike 'no mail' of ada: the provider is down" in told.text
            assert told.help == "forge-jobs strikes lift 'no mail'"

            assert job.hold is Hold.STRUCK
            await ada.lift_strike("no mail")
            assert (await ended(storage, job.id)).attempt == 1
    assert shop.ran == {"mail a": 1, "pay 5": 1}


async def test_a_condition_means_some_payloads_and_cancels_with_a_record(storage: Storage) -> None:
    shop = Shop()
    rule = StrikeRule(where="amount between [100, 200]", effect=Effect.CANCEL, reason="fraud")
    async with an_operator(storage) as ada:
        await ada.add_strike("big", rule)
        async with a_runtime(storage, shop.handlers).start() as handle:
            requests = [shop.pay.request(amount) for amount in (99, 100, 200, 201)]
            ids = [each.job_id for each in await handle.enqueue_many(requests)]
            jobs = [await ended(storage, each) for each in ids]
            told = await ada.explain_job(jobs[1].id)
    assert [job.status for job in jobs] == [
        JobStatus.DONE, JobStatus.CANCELLED, JobStatus.CANCELLED, JobStatus.DONE,
    ]  # fmt: skip
    assert jobs[1].cause is Cause.STRUCK
    assert jobs[1].errors[-1].message == "the strike 'big' of ada cancels it: fraud"
    assert "cancelled: the strike 'big' of ada cancels it: fraud" in told.text
    assert shop.ran == {"pay 99": 1, "pay 201": 1}


async def test_a_job_runs_once_no_strike_holds_the_job(storage: Storage) -> None:
    shop = Shop()
    async with an_operator(storage) as ada:
        await ada.add_strike("kind", StrikeRule(kind="pay"))
        await ada.add_strike("payload", StrikeRule(where="amount == 1"))
        async with a_runtime(storage, shop.handlers).start() as handle:
            outcome = await handle.enqueue(shop.pay.request(1))
            job = await job_because(storage, outcome.job_id, Cause.STRUCK)
            assert job.struck_by == "kind"
            await ada.lift_strike("kind")

            async def by_the_other() -> bool:
                return (await stored(storage, job.id)).struck_by == "payload"

            await wait_until(by_the_other, description="the other strike holds the job")
            assert shop.ran == {}
            await ada.lift_strike("payload")
            await ended(storage, job.id)
    assert shop.ran == {"pay 1": 1}


async def test_a_pod_learns_of_a_strike_while_it_runs(storage: Storage) -> None:
    shop = Shop()
    async with (
        an_operator(storage) as ada,
        a_runtime(storage, shop.handlers).start() as handle,
    ):
        before = await handle.enqueue(shop.mail.request("before"))
        await ended(storage, before.job_id)
        await ada.add_strike("mail", StrikeRule(kind="mail"))

        async def is_held() -> bool:
            outcome = await handle.enqueue(shop.mail.request("after"))

            async def looked() -> Job | None:
                job = await stored(storage, outcome.job_id)
                return (
                    None
                    if job.cause is Cause.ENQUEUED or job.status is JobStatus.IN_PROGRESS
                    else job
                )

            job: Job = await wait_until(looked, description="the job has been judged or has run")
            return job.cause is Cause.STRUCK

        await wait_until(is_held, description="the pod knows the strike")


async def test_an_encrypted_payload_is_judged_by_a_pod_that_has_the_key(storage: Storage) -> None:
    shop = Shop(Encryption.new_key())
    await storage.config.put_strike("seven", StrikeRule(where="amount == 7"), "ada")
    async with a_runtime(storage, shop.handlers).start() as handle:
        seven, eight = await handle.enqueue_many([shop.pay.request(7), shop.pay.request(8)])
        await job_because(storage, seven.job_id, Cause.STRUCK)
        await ended(storage, eight.job_id)
    assert shop.ran == {"pay 8": 1}


async def test_many_held_jobs_are_released_once_each(storage: Storage) -> None:
    shop, number = Shop(), 700
    await storage.config.put_strike("mail", StrikeRule(kind="mail"), "ada")
    async with (
        an_operator(storage) as ada,
        a_runtime(storage, shop.handlers, workers=8).start() as handle,
    ):
        requests = [shop.mail.request(f"{n}") for n in range(number)]
        ids = [each.job_id for each in await handle.enqueue_many(requests)]

        async def all_with(cause: Cause) -> bool:
            jobs = (await storage.jobs.get(ids)).values()
            return all(job.cause is cause for job in jobs)

        await wait_until(lambda: all_with(Cause.STRUCK), description="all are held")
        # The leader of the pods releases them beside this call.
        assert (await ada.lift_strike("mail")).released <= number
        await wait_until(lambda: all_with(Cause.SUCCEEDED), description="all have run")
    assert shop.ran == {f"mail {n}": 1 for n in range(number)}


async def test_while_the_store_does_not_say_its_strikes_nothing_runs_unjudged(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_down = True
    answer: Callable[[Any], Any] = type(storage.config).strikes

    async def strikes(self: Any) -> list[Strike]:
        if is_down:
            raise Unavailable("the store is away")
        found: list[Strike] = await answer(self)
        return found

    monkeypatch.setattr(type(storage.config), "strikes", strikes)
    shop = Shop()
    async with a_runtime(storage, shop.handlers).start() as handle:
        outcome = await handle.enqueue(shop.pay.request(1))
        job = await job_because(storage, outcome.job_id, Cause.STRUCK)
        assert (job.struck_by, job.attempt, shop.ran) == (None, 0, Counter())
        is_down = False
        await ended(storage, job.id)
    assert shop.ran == {"pay 1": 1}
    counted = await counters(storage)
    assert counted["claimed"] == counted["struck"] + counted["succeeded"], counted


async def test_a_strike_that_is_lifted_beside_the_pod_holds_nothing(storage: Storage) -> None:
    """The pod hears of no change any more, but asks the store before holding a job."""
    shop = Shop()
    await storage.config.put_strike("mail", StrikeRule(kind="mail"), "ada")
    async with a_runtime(storage, shop.handlers).start() as handle:
        first = await handle.enqueue(shop.mail.request("a"))
        await job_because(storage, first.job_id, Cause.STRUCK)
        handle._pod.loops.strikes.stop()
        await storage.config.lift_strike("mail")
        second = await handle.enqueue(shop.mail.request("b"))
        await ended(storage, second.job_id)
    assert shop.ran == {"mail b": 1}


async def test_a_set_and_a_lift_are_recorded_and_undone(storage: Storage) -> None:
    rule = StrikeRule(kind="mail", reason="a test")
    async with an_operator(storage) as ada:
        await ada.add_strike("mail", rule)
        [added] = (await ada.list_actions()).actions
        assert (added.verb, added.target, added.actor) == ("add_strike", "mail", "ada")
        assert json.loads(added.after)["by"] == "ada"
        await ada.lift_strike("mail")
        assert (await ada.list_strikes()).strikes == ()
        lifted = next(
            each for each in (await ada.list_actions()).actions if each.verb == "lift_strike"
        )
        await ada.undo_action(lifted.id)
        [strike] = (await ada.list_strikes()).strikes
        assert (strike.rule, strike.by) == (rule, "ada")
        with pytest.raises(NotFound):
            await ada.lift_strike("other")


async def test_what_a_client_without_handlers_enqueues_is_judged_before_the_run(
    storage: Storage,
) -> None:
    shop = Shop()
    await storage.config.put_strike("big", StrikeRule(where="amount > 9"), "ada")
    async with JobClient(storage) as client:
        request = EnqueueRequest("pay", {"amount": 10}, queue="default")
        outcome = await client.enqueue(request)
    async with a_runtime(storage, shop.handlers).start():
        await job_because(storage, outcome.job_id, Cause.STRUCK)
    assert shop.ran == {}


async def test_a_lift_by_a_program_that_dies_leaves_the_jobs_to_the_leader(
    storage: Storage,
) -> None:
    shop = Shop()
    await storage.config.put_strike("mail", StrikeRule(kind="mail"), "ada")
    async with a_runtime(storage, shop.handlers).start() as handle:
        outcome = await handle.enqueue(shop.mail.request("a"))
        await job_because(storage, outcome.job_id, Cause.STRUCK)
        # All that such a program did.
        await storage.config.lift_strike("mail")
        await ended(storage, outcome.job_id)
    assert shop.ran == {"mail a": 1}


async def test_a_strike_that_is_edited_frees_what_it_means_no_more(storage: Storage) -> None:
    shop = Shop()
    async with (
        an_operator(storage) as ada,
        a_runtime(storage, shop.handlers).start() as handle,
    ):
        await ada.add_strike("s", StrikeRule(where="amount > 1"))
        one, two = await handle.enqueue_many([shop.pay.request(2), shop.pay.request(3)])
        for each in (one, two):
            await job_because(storage, each.job_id, Cause.STRUCK)
        await ada.add_strike("s", StrikeRule(where="amount > 2"))
        await ended(storage, one.job_id)

        async def is_held() -> bool:
            return (await stored(storage, two.job_id)).hold is Hold.STRUCK

        await wait_until(is_held, description="the edited strike holds the other job")
    assert shop.ran == {"pay 2": 1}
