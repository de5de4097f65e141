"""Limits with a share: the keys take turns, and use all slots between them."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, Hold
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import MAX_WORKERS_LIMIT, LimitState
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    crashed,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NAME = "tests.tenants"
OTHER = "tests.weighty"


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    await storage.config.ensure_limits(QUEUE, {NAME: MAX_WORKERS_LIMIT}, {NAME: 1})
    return await register(storage, lease_for=HOUR)


async def store(storage: Storage, key: str, **fields: object) -> JobId:
    return await enqueue_one(storage, **{"limit_name": NAME, "limit_key": key, **fields})


async def store_many(storage: Storage, clock: ManualClock, key: str, count: int) -> None:
    await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key=key) for _ in range(count)])
    clock.advance(MICROSECOND)


async def claim_to_the_end(
    storage: Storage, lease: PodLease, clock: ManualClock, limit: int
) -> list[ClaimedJob]:
    """Claim as a pod does: again while the answer says that more jobs are due."""
    clock.advance(MICROSECOND)
    claims: list[ClaimedJob] = []
    while len(claims) < limit:
        wanted = limit - len(claims)
        workers = tuple(f"w{number}" for number in range(wanted))
        demand = Demand(worker_ids=workers, limit=wanted, kinds=frozenset({KIND}))
        exchange = await storage.jobs.exchange(QUEUE, [], demand, lease)
        claims += exchange.claimed
        if exchange.next_due_in != timedelta(0):
            break
    return claims


class Slots:
    """The slots of one pod, of which the one that was taken first becomes free first."""

    def __init__(self, storage: Storage, lease: PodLease, clock: ManualClock, number: int) -> None:
        self._storage, self._lease, self._clock, self._number = storage, lease, clock, number
        self._running: list[ClaimedJob] = []
        self.keys: dict[JobId, str] = {}
        self.started: list[str] = []

    async def fill(self) -> None:
        free = self._number - len(self._running)
        new = await claim_to_the_end(self._storage, self._lease, self._clock, free)
        ids = [one.claim.job_id for one in new]
        jobs = await self._storage.jobs.get(ids)
        self.keys |= {each: jobs[each].limit_key for each in ids}
        self.started += [self.keys[each] for each in ids]
        self._running += new

    async def end(self, key: str | None = None) -> None:
        ended = next(
            one for one in self._running if key is None or self.keys[one.claim.job_id] == key
        )
        self._running.remove(ended)
        await finish(self._storage, ended, done())

    async def turn(self, times: int = 1) -> None:
        for _ in range(times):
            await self.end()
            await self.fill()

    @property
    def running(self) -> Counter[str]:
        return Counter(self.keys[one.claim.job_id] for one in self._running)


@pytest.mark.parametrize("slots", [1, 3])
async def test_the_backlog_of_a_key_delays_one_of_another_by_at_most_a_round(
    storage: Storage, lease: PodLease, clock: ManualClock, slots: int
) -> None:
    await store_many(storage, clock, "big", 2_000)
    await store(storage, "small")
    pod = Slots(storage, lease, clock, slots)
    await pod.fill()
    await pod.turn(2)
    # Jobs of one claim come in any order.
    assert "small" in pod.started[: max(slots, 2)]
    await store(storage, "another")
    before = len(pod.started)
    await pod.turn(3)
    assert "another" in pod.started[before : before + 2]


async def test_a_newcomer_waits_for_one_job_of_each_other_key_at_most(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    heavy = [f"heavy {number}" for number in range(20)]
    for key in heavy:
        await store_many(storage, clock, key, 8)
    pod = Slots(storage, lease, clock, 4)
    await pod.fill()
    await pod.turn(30)
    counts = Counter(pod.started)
    assert {*counts} == {*heavy}
    assert max(counts.values()) - min(counts.values()) <= 1
    await store(storage, "new")
    before = len(pod.started)
    await pod.turn(len(heavy) + 1)
    assert "new" in pod.started[before:]


async def test_a_key_alone_has_all_slots_and_two_have_half_each(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await store_many(storage, clock, "a", 40)
    pod = Slots(storage, lease, clock, 8)
    await pod.fill()
    assert pod.running == {"a": 8}
    await store_many(storage, clock, "b", 20)
    await pod.turn(4)
    assert pod.running == {"a": 4, "b": 4}
    # Also where the jobs of one key end sooner.
    for _ in range(6):
        await pod.end("b")
        await pod.fill()
        assert pod.running == {"a": 4, "b": 4}
    await pod.turn(8)
    assert pod.running == {"a": 4, "b": 4}


async def test_slots_are_in_proportion_to_the_shares(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    limits = {NAME: MAX_WORKERS_LIMIT, OTHER: MAX_WORKERS_LIMIT}
    await storage.config.ensure_limits(QUEUE, limits, {NAME: 1, OTHER: 2})
    await store_many(storage, clock, "a", 20)
    for _ in range(20):
        await store(storage, "twice", limit_name=OTHER)
    pod = Slots(storage, lease, clock, 6)
    await pod.fill()
    assert pod.running == {"a": 2, "twice": 4}
    await pod.turn(9)
    assert pod.running == {"a": 2, "twice": 4}


async def test_the_bound_holds_beside_the_share(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2}, {NAME: 1})
    await store_many(storage, clock, "a", 6)
    await store_many(storage, clock, "b", 1)
    pod = Slots(storage, lease, clock, 5)
    await pod.fill()
    assert pod.running == {"a": 2, "b": 1}
    await pod.turn(3)
    assert pod.running == {"a": 2}
    await storage.config.set_limit(QUEUE, NAME, 1, 1)
    await pod.turn()
    assert pod.running == {"a": 1}
    await pod.turn()
    assert pod.running == {"a": 1}
    await pod.turn(2)
    assert not pod.running
    assert len(pod.started) == 7


async def test_jobs_of_a_key_start_in_the_order_of_the_queue(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    ids: dict[str, list[JobId]] = {"a": [], "b": []}
    for number in range(12):
        key = "ab"[number % 2]
        ids[key].append(await store(storage, key))
        clock.advance(MICROSECOND)
    first = await store(storage, "a", priority=-1)
    last = await store(storage, "b", priority=1)
    pod = Slots(storage, lease, clock, 2)
    await pod.fill()
    while pod.running:
        await pod.turn()
    order = {key: [each for each, of in pod.keys.items() if of == key] for key in "ab"}
    assert order == {"a": [first, *ids["a"]], "b": [*ids["b"], last]}


async def test_a_lower_priority_number_comes_before_any_turn(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await store_many(storage, clock, "a", 3)
    for _ in range(3):
        await store(storage, "b", priority=-1)
    pod = Slots(storage, lease, clock, 1)
    await pod.fill()
    await pod.turn(4)
    assert pod.started == ["b", "b", "b", "a", "a"]


async def test_one_claim_takes_many_jobs_of_the_key_that_comes_first(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    for key in ("one", "two", "three"):
        await store_many(storage, clock, key, 5)
    assert len(await claim_to_the_end(storage, lease, clock, 6)) == 6
    # No job of this key is in progress, and of each other key two are.
    calm = [await store(storage, "calm") for _ in range(5)]
    assert {one.claim.job_id for one in await claim_to_the_end(storage, lease, clock, 2)} == {
        *calm[:2]
    }
    urgent = [await store(storage, "one", priority=-1) for _ in range(4)]
    assert {one.claim.job_id for one in await claim_to_the_end(storage, lease, clock, 3)} == {
        *urgent[:3]
    }


async def test_the_claims_of_one_call_are_in_the_order_of_the_turns(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    keys: dict[JobId, str] = {}
    for key in ("a", "b", "c"):
        for _ in range(3):
            keys[await store(storage, key)] = key
        clock.advance(MICROSECOND)
    demand = Demand(worker_ids=("w1", "w2"), limit=9, kinds=frozenset({KIND}))
    exchange = await storage.jobs.exchange(QUEUE, [], demand, lease)
    claimed = [one.claim.job_id for one in exchange.claimed]
    assert [keys[each] for each in claimed] == [*"abcabcabc"]
    stored = await storage.jobs.get(claimed)
    assert [stored[each].worker_id for each in claimed] == ["w1", "w2", *[""] * 7]


async def test_behind_first_jobs_that_cannot_be_taken_others_of_their_keys_are(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    for key in ("one", "two", "three"):
        await store_many(storage, clock, key, 2)
    first = await claim_to_the_end(storage, lease, clock, 6)
    clock.advance(2 * SECOND)
    for each in first:
        # It may kill the process, and so is not held ahead.
        assert await revive(storage, each, crashed(), stale_after=SECOND)
    behind = [await store(storage, key) for key in ("one", "two", "three")]
    ahead = await claim(storage, lease, limit=3, ahead=True)
    assert {one.claim.job_id for one in ahead} == {*behind}


async def test_jobs_without_a_share_take_their_places_by_their_due_times(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await store_many(storage, clock, "a", 3)
    await store(storage, "plain", limit_name="")
    clock.advance(MICROSECOND)
    await store_many(storage, clock, "b", 2)
    await store(storage, "late", limit_name="", priority=1)
    pod = Slots(storage, lease, clock, 1)
    await pod.fill()
    await pod.turn(6)
    assert pod.started == ["a", "plain", "b", "a", "b", "a", "late"]


@pytest.mark.parametrize("end", ["released", "crashed"])
async def test_a_pod_that_goes_leaves_no_key_without_its_turn(
    storage: Storage, lease: PodLease, clock: ManualClock, end: str
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1}, {NAME: 1})
    await store_many(storage, clock, "a", 3)
    [first] = await claim_to_the_end(storage, lease, clock, 3)
    assert not await claim_to_the_end(storage, lease, clock, 3)
    if end == "released":
        assert await storage.jobs.release([first.claim]) == [True]
    else:
        clock.advance(2 * SECOND)
        await revive(storage, first, crashed(delay=HOUR), stale_after=SECOND)
    [_] = await claim_to_the_end(storage, lease, clock, 3)


async def test_a_share_is_given_changed_and_taken_from_a_running_limit(
    storage: Storage, clock: ManualClock
) -> None:
    config = storage.config
    lease = await register(storage, lease_for=HOUR)
    await config.ensure_limits(QUEUE, {NAME: 1})
    for key in ("a", "b"):
        await store_many(storage, clock, key, 6)
    pod = Slots(storage, lease, clock, 6)
    await pod.fill()
    assert pod.running == {"a": 1, "b": 1}
    await config.set_limit(QUEUE, NAME, 100, 3)
    assert (await config.limits())[0] == LimitState(
        queue=QUEUE, name=NAME, at_most=100, share=3, overridden=True
    )
    await pod.fill()
    assert pod.running == {"a": 3, "b": 3}
    await config.set_limit(QUEUE, NAME, 2)
    await pod.end("a")
    await pod.fill()
    assert pod.running == {"a": 2, "b": 3}
    await config.delete_limit(QUEUE, NAME)
    await pod.fill()
    assert pod.running == {"a": 3, "b": 3}
    while pod.running:
        await pod.turn()
    assert Counter(pod.started) == {"a": 6, "b": 6}


async def test_jobs_whose_turn_has_not_come_are_on_hold_and_can_be_acted_on(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await store_many(storage, clock, "a", 1)
    ids = [await store(storage, "a") for _ in range(3)]
    pod = Slots(storage, lease, clock, 1)
    await pod.fill()
    assert (await get_job(storage, ids[0])).hold is Hold.LIMIT
    assert (await storage.jobs.cancel(JobFilter(ids=(ids[0],)))).changed == (ids[0],)
    assert (await storage.jobs.delete(JobFilter(ids=(ids[1],)))).changed == (ids[1],)
    await pod.turn()
    assert [*pod.keys][1:] == [ids[2]]


async def test_a_job_of_a_kind_that_a_pod_does_not_know_delays_no_other(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    other = await register(storage, lease_for=HOUR, kinds=("tests.other",))
    strange = await store(storage, "a", kind="tests.other")
    clock.advance(MICROSECOND)
    await store_many(storage, clock, "a", 3)
    pod = Slots(storage, lease, clock, 2)
    await pod.fill()
    assert pod.running == {"a": 2}
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({"tests.other"}))
    claims = (await storage.jobs.exchange(QUEUE, [], demand, other)).claimed
    assert [one.claim.job_id for one in claims] == [strange]
    await pod.turn()
    assert pod.started == ["a"] * 3


async def test_keys_that_one_claim_leaves_wake_another_pod(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    # With a time of their own, so that the claim puts them on hold.
    await storage.jobs.enqueue(
        [new_job(limit_name=NAME, limit_key="a", run_at=clock.now()) for _ in range(4)]
    )
    while await storage.jobs.wait_for_work(frozenset({QUEUE}), SECOND / 50):
        pass
    assert len(await claim(storage, lease, limit=1)) == 1
    async with asyncio.timeout(60):
        while (
            QUEUE not in (await storage.jobs.wait_for_work(frozenset({QUEUE}), 30 * SECOND)).queues
        ):
            pass
    other = await register(storage, lease_for=HOUR)
    assert len(await claim(storage, other, limit=5)) == 3


async def test_claims_by_many_pods_start_each_job_once_within_the_bound(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2}, {NAME: 1})
    for key in "abc":
        await store_many(storage, clock, key, 8)
    ended: list[JobId] = []
    running: Counter[str] = Counter()
    passed: list[str] = []

    async def one_pod() -> None:
        of = await register(storage, lease_for=HOUR)
        while len(ended) < 24:
            claims = await claim(storage, of, limit=2)
            keys = [(await get_job(storage, one.claim.job_id)).limit_key for one in claims]
            running.update(keys)
            passed.extend(key for key, count in running.items() if count > 2)
            for key, one in zip(keys, claims, strict=True):
                running[key] -= 1
                await finish(storage, one, done())
                ended.append(one.claim.job_id)

    async with asyncio.timeout(120):
        await asyncio.gather(*(one_pod() for _ in range(4)))
    assert not passed
    assert len({*ended}) == len(ended) == 24


async def test_a_share_is_a_number_of_a_limit(storage: Storage) -> None:
    config = storage.config
    for wrong in (0, -1, True, MAX_WORKERS_LIMIT + 1):
        with pytest.raises(InvalidInput):
            await config.set_limit(QUEUE, NAME, 1, wrong)
        with pytest.raises(InvalidInput):
            await config.ensure_limits(QUEUE, {NAME: 1}, {NAME: wrong})
    with pytest.raises(InvalidInput):
        await config.ensure_limits(QUEUE, {}, {NAME: 1})
    await config.ensure_limits(QUEUE, {NAME: 5}, {NAME: 1})
    await config.ensure_limits(QUEUE, {NAME: 5}, {NAME: 2})
    assert [(each.at_most, each.share) for each in await config.limits()] == [(5, 2)]
    await config.ensure_limits(QUEUE, {NAME: 5})
    assert [(each.at_most, each.share) for each in await config.limits()] == [(5, None)]
    await config.set_limit(QUEUE, NAME, 4, 7)
    await config.ensure_limits(QUEUE, {NAME: 5}, {NAME: 1})
    assert [(each.at_most, each.share) for each in await config.limits()] == [(4, 7)]


async def test_a_claim_for_more_jobs_than_it_looks_at_keys_says_that_more_are_due(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    keys = 700
    await storage.jobs.enqueue(
        [new_job(limit_name=NAME, limit_key=f"tenant {n}") for n in range(keys)]
    )
    assert len(await claim_to_the_end(storage, lease, clock, keys)) == keys


async def test_keys_whose_jobs_have_expired_leave_no_slot_empty(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    gone = {"limit_name": NAME, "expires_at": clock.now() + SECOND}
    await storage.jobs.enqueue([new_job(limit_key=f"gone {n}", **gone) for n in range(300)])
    clock.advance(MICROSECOND)
    await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key=f"{n}") for n in range(5)])
    clock.advance(2 * SECOND)
    assert len(await claim_to_the_end(storage, lease, clock, 10)) == 5
