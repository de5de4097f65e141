"""The leader lease: the holder, the terms, and how the lease passes on."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_host_id
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    MICROSECOND,
    SECOND,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def test_nobody_led_at_first(storage: Storage) -> None:
    assert await storage.cron.leader() is None


async def test_the_first_to_ask_leads_and_the_others_see_who(storage: Storage) -> None:
    first, second = new_host_id(), new_host_id()
    mine = await storage.cron.lead(first, LEASE)
    assert (mine.host_id, mine.remaining) == (first, LEASE)
    theirs = await storage.cron.lead(second, LEASE)
    assert (theirs.host_id, theirs.term) == (first, mine.term)
    assert await storage.cron.leader() == mine


async def test_only_the_leader_is_told_the_version_of_the_fleet(storage: Storage) -> None:
    leader, other = new_host_id(), new_host_id()
    assert (await storage.cron.lead(leader, LEASE)).fleet_version != ""
    assert (await storage.cron.lead(other, LEASE)).fleet_version == ""
    standing = await storage.cron.leader()
    assert standing is not None
    assert standing.fleet_version != ""


async def test_of_many_who_ask_at_once_one_leads(storage: Storage) -> None:
    answers = await asyncio.gather(*(storage.cron.lead(new_host_id(), LEASE) for _ in range(8)))
    assert len({(answer.host_id, answer.term) for answer in answers}) == 1


async def test_renewing_extends_the_lease_and_keeps_the_term(
    storage: Storage, clock: ManualClock
) -> None:
    host = new_host_id()
    first = await storage.cron.lead(host, LEASE)
    clock.advance(LEASE - MICROSECOND)
    renewed = await storage.cron.lead(host, LEASE)
    assert (renewed.term, renewed.remaining) == (first.term, LEASE)


async def test_the_lease_is_free_at_its_last_microsecond_and_not_before(
    storage: Storage, clock: ManualClock
) -> None:
    first, second = new_host_id(), new_host_id()
    mine = await storage.cron.lead(first, LEASE)
    clock.advance(LEASE - MICROSECOND)
    assert (await storage.cron.lead(second, LEASE)).host_id == first
    clock.advance(MICROSECOND)
    standing = await storage.cron.leader()
    assert standing is not None
    assert (standing.host_id, standing.remaining) == (first, timedelta(0))
    taken = await storage.cron.lead(second, LEASE)
    assert (taken.host_id, taken.remaining) == (second, LEASE)
    assert taken.term == mine.term + 1


async def test_asking_in_vain_extends_nothing(storage: Storage, clock: ManualClock) -> None:
    first, second = new_host_id(), new_host_id()
    await storage.cron.lead(first, LEASE)
    clock.advance(SECOND)
    assert (await storage.cron.lead(second, 10 * LEASE)).remaining == LEASE - SECOND


async def test_the_term_grows_when_the_old_holder_takes_it_again(
    storage: Storage, clock: ManualClock
) -> None:
    host, other = new_host_id(), new_host_id()
    terms = [(await storage.cron.lead(host, LEASE)).term]
    clock.advance(LEASE)
    terms.append((await storage.cron.lead(host, LEASE)).term)
    clock.advance(LEASE)
    terms.append((await storage.cron.lead(other, LEASE)).term)
    clock.advance(LEASE)
    terms.append((await storage.cron.lead(host, LEASE)).term)
    assert [term - terms[0] for term in terms] == [0, 1, 2, 3]


async def test_resigning_frees_the_lease_at_once_and_wakes_coordinators(storage: Storage) -> None:
    host, other = new_host_id(), new_host_id()
    mine = await storage.cron.lead(host, LEASE)
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await storage.cron.resign(host, mine.term)
    assert (await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))).fleet
    standing = await storage.cron.leader()
    assert standing is not None
    assert standing.remaining == timedelta(0)
    taken = await storage.cron.lead(other, LEASE)
    assert (taken.host_id, taken.term) == (other, mine.term + 1)


async def test_who_resigns_and_leads_again_has_another_term(storage: Storage) -> None:
    host = new_host_id()
    mine = await storage.cron.lead(host, LEASE)
    await storage.cron.resign(host, mine.term)
    assert (await storage.cron.lead(host, LEASE)).term == mine.term + 1


async def test_resigning_is_a_no_op_for_another_holder_or_term(
    storage: Storage, clock: ManualClock
) -> None:
    host, other = new_host_id(), new_host_id()
    old = await storage.cron.lead(host, LEASE)
    await storage.cron.resign(other, old.term)
    clock.advance(LEASE)
    new = await storage.cron.lead(host, LEASE)
    await storage.cron.resign(host, old.term)
    assert await storage.cron.leader() == new


async def test_now_is_the_stores_own_time(storage: Storage, clock: ManualClock) -> None:
    clock.advance(timedelta(days=3, microseconds=7))
    assert await storage.cron.now() == clock.now()
