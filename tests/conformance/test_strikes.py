"""Strikes in a store: set, listed and lifted."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model import strikes
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.strikes import Effect, StrikeRule
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, enqueue_one, finish, register

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
LONG, QUIET = timedelta(seconds=20), timedelta(milliseconds=300)
MAIL = StrikeRule(kind="mail", reason="the provider is down")
BIG = StrikeRule(where="amount > 100", effect=Effect.CANCEL)


async def test_strikes_are_stored_listed_and_lifted(storage: Storage, clock: ManualClock) -> None:
    assert await storage.config.strikes() == []
    await storage.config.put_strike("mail", MAIL, "ada")
    first = clock.now()
    clock.advance(HOUR)
    await storage.config.put_strike("big", BIG, "bob")

    big, mail = await storage.config.strikes()
    assert (big.name, big.rule, big.by, big.at) == ("big", BIG, "bob", clock.now())
    assert (mail.name, mail.rule, mail.by, mail.at) == ("mail", MAIL, "ada", first)

    await storage.config.lift_strike("big")
    assert [each.name for each in await storage.config.strikes()] == ["mail"]
    with pytest.raises(NotFound, match="there is no strike 'big'"):
        await storage.config.lift_strike("big")


async def test_a_strike_of_the_same_name_is_set_anew(storage: Storage) -> None:
    await storage.config.put_strike("s", MAIL, "ada")
    await storage.config.put_strike("s", BIG, "bob")
    [strike] = await storage.config.strikes()
    assert (strike.rule, strike.by) == (BIG, "bob")


async def test_there_is_room_for_so_many_strikes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = storage.config
    monkeypatch.setattr(strikes, "MOST_STRIKES", 2)
    await config.put_strike("a", MAIL, "ada")
    await config.put_strike("b", MAIL, "ada")
    with pytest.raises(InvalidInput, match="lift another one first"):
        await config.put_strike("c", MAIL, "ada")
    await config.put_strike("b", BIG, "ada")
    await config.lift_strike("a")
    await config.put_strike("c", MAIL, "ada")
    assert [each.name for each in await config.strikes()] == ["b", "c"]


async def test_many_callers_set_and_lift_at_once(storage: Storage) -> None:
    config = storage.config
    await asyncio.gather(*(config.put_strike(f"s{n}", MAIL, "ada") for n in range(8)))
    lifted = await asyncio.gather(
        *(config.lift_strike(f"s{n % 4}") for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(each, NotFound) for each in lifted) == 4
    assert [each.name for each in await config.strikes()] == ["s4", "s5", "s6", "s7"]


async def test_a_set_wakes_beats(storage: Storage) -> None:
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await storage.config.put_strike("s", MAIL, "ada")
    assert (await storage.jobs.wait_for_work(frozenset(), LONG)).beat


async def test_a_lift_wakes_beats(storage: Storage) -> None:
    await storage.config.put_strike("s", MAIL, "ada")
    while await storage.jobs.wait_for_work(frozenset(), QUIET):
        pass  # of the set
    await storage.config.lift_strike("s")
    assert (await storage.jobs.wait_for_work(frozenset(), LONG)).beat


async def test_a_struck_job_waits_with_its_attempt_and_says_which_strike(storage: Storage) -> None:
    lease = await register(storage, lease_for=HOUR)
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    struck = Transition(
        status=JobStatus.PENDING,
        cause=Cause.STRUCK,
        delay=HOUR,
        hand_back=True,
        rate_limit="s",
    )
    assert await finish(storage, claimed, struck)
    [job] = (await storage.jobs.get([job_id])).values()
    assert (job.status, job.cause, job.attempt) == (JobStatus.PENDING, Cause.STRUCK, 0)
    assert (job.struck_by, job.rate_limit) == ("s", None)
