"""Limits: how many jobs of a key are in progress at once, in which order, and when the next is."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.edits import content_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import ClaimedJob, Hold, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import LimitState
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    crashed,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NAME = "tests.hosts"
MINE = frozenset({QUEUE})


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=HOUR)


async def store(storage: Storage, key: str, *, name: str = NAME, **fields: object) -> JobId:
    return await enqueue_one(storage, limit_name=name, limit_key=key, **fields)


def ids_of(claims: list[ClaimedJob]) -> list[JobId]:
    return [one.claim.job_id for one in claims]


async def exchanged(storage: Storage, lease: PodLease, ended: ClaimedJob) -> list[ClaimedJob]:
    """End a job and claim what is due, in one call."""
    demand = Demand(worker_ids=("w1", "w2"), limit=2, kinds=frozenset({KIND}))
    end = Finalization(ended.claim, done())
    exchange = await storage.jobs.exchange(QUEUE, [end], demand, lease)
    assert exchange.settled == (True,)
    return list(exchange.claimed)


async def postpone(storage: Storage, job_id: JobId) -> None:
    """Let a job be due in an hour, as an operator does."""
    job = await get_job(storage, job_id)
    before = content_of(job)
    after = structs.replace(before, due_at=before.due_at + HOUR)
    await storage.jobs.edit(job_id, token=job.token, before=before, after=after)


async def end_all(storage: Storage, claims: list[ClaimedJob]) -> None:
    for one in claims:
        await finish(storage, one, done())


async def test_of_each_key_as_many_jobs_run_as_the_limit_says(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    for _ in range(4):
        for key in ("a", "b", "it's: %s {}", ""):
            await store(storage, key)
    await store(storage, "a", name="")
    await store(storage, "a", name="tests.of_no_limit")
    claims = await claim(storage, lease, limit=50)
    jobs = await storage.jobs.get(ids_of(claims))
    counted = Counter((job.limit_name, job.limit_key) for job in jobs.values())
    assert counted == {
        **{(NAME, key): 2 for key in ("a", "b", "it's: %s {}", "")},
        ("", "a"): 1,
        ("tests.of_no_limit", "a"): 1,
    }
    assert not await claim(storage, lease, limit=50)


async def test_a_job_that_comes_while_its_key_is_full_waits(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    first = await store(storage, "a")
    [running] = await claim(storage, lease, limit=2)
    second = await store(storage, "a")
    assert not await claim(storage, lease, limit=2)
    assert await exchanged(storage, lease, running)
    jobs = await storage.jobs.get([first, second])
    assert [jobs[each].status for each in (first, second)] == [
        JobStatus.DONE,
        JobStatus.IN_PROGRESS,
    ]


async def test_a_job_that_came_before_its_key_was_full_waits_too(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = {await store(storage, "a") for _ in range(2)}
    [first] = await claim(storage, lease, limit=1)
    assert not await claim(storage, lease, limit=1)
    assert ids_of(await exchanged(storage, lease, first)) == [*ids - {first.claim.job_id}]


async def test_jobs_of_a_key_start_in_the_order_of_the_queue(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = []
    for _ in range(5):
        ids.append(await store(storage, "a"))
        clock.advance(MICROSECOND)
    first = await store(storage, "a", priority=-1)
    order: list[JobId] = []
    while claims := await claim(storage, lease, limit=3):
        order += ids_of(claims)
        # A job that comes later is no reason to pass over one that waits.
        clock.advance(MICROSECOND)
        if len(ids) < 8:
            ids.append(await store(storage, "a"))
        await end_all(storage, claims)
    assert order == [first, *ids]


async def test_with_many_keys_at_once_jobs_on_hold_come_before_later_ones(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    keys = range(510)
    for _ in range(2):
        await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key=f"k{n}") for n in keys])
        clock.advance(MICROSECOND)
    running = await claim(storage, lease, limit=1_000)
    while more := await claim(storage, lease, limit=1_000):
        running += more
    assert len(running) == len(keys)
    # More keys are opened at once than one claim looks at.
    await storage.jobs.finalize([Finalization(each.claim, done()) for each in running])
    later = [new_job(limit_name=NAME, limit_key=f"k{n}") for n in keys]
    await storage.jobs.enqueue(later)
    claims = ids_of(await claim(storage, lease, limit=1_000))
    while next_ones := await claim(storage, lease, limit=1_000):
        claims += ids_of(next_ones)
    assert len(claims) == len(keys)
    assert not {one.id for one in later} & {*claims}


async def test_jobs_of_a_full_key_wait_on_hold_and_others_pass(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    full = [await store(storage, "a") for _ in range(30)]
    clock.advance(SECOND)
    other = await store(storage, "b")
    claims = await claim(storage, lease, limit=2)
    assert ids_of(claims) == [full[0], other]
    jobs = await storage.jobs.get(full)
    assert {job.hold for job in jobs.values()} <= {None, Hold.LIMIT}
    assert (await storage.jobs.get([full[1]]))[full[1]].hold is Hold.LIMIT


@pytest.mark.parametrize("end", ["done", "failed", "released", "crashed"])
async def test_any_end_of_a_claim_makes_room_for_the_next_job(
    storage: Storage, lease: PodLease, clock: ManualClock, end: str
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = [await store(storage, "a") for _ in range(2)]
    ids.sort()
    [first] = await claim(storage, lease, limit=2)
    assert not await claim(storage, lease, limit=2)
    if end == "done":
        await finish(storage, first, done())
    elif end == "failed":
        await finish(storage, first, failed(delay=HOUR))
    elif end == "released":
        assert await storage.jobs.release([first.claim]) == [True]
    else:
        clock.advance(2 * SECOND)
        await revive(storage, first, crashed(delay=HOUR), stale_after=SECOND)
    [second] = await claim(storage, lease, limit=2)
    # A job that was handed back keeps the first due time, and so comes first again.
    assert second.claim.job_id == ids[0 if end == "released" else 1]
    assert not await claim(storage, lease, limit=2)


async def test_the_exchange_that_ends_a_job_claims_the_next_one(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    for _ in range(3):
        await store(storage, "a")
    claims = await claim(storage, lease, limit=2)
    for _ in range(2):
        assert len(claims) == 1
        claims = await exchanged(storage, lease, claims[0])
    assert len(claims) == 1
    assert not await exchanged(storage, lease, claims[0])


async def test_the_exchange_that_ends_a_job_claims_the_next_one_before_those_behind(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = [await store(storage, "a") for _ in range(2)]
    [first] = await claim(storage, lease, limit=2)
    clock.advance(MICROSECOND)
    behind = [await store(storage, key) for key in ("b", "c")]
    claims = await exchanged(storage, lease, first)
    assert {*ids_of(claims)} == {*ids, behind[0]} - {first.claim.job_id}


@pytest.mark.parametrize("verb", ["cancel", "delete", "edit"])
async def test_a_job_that_was_made_ready_and_goes_keeps_no_other_waiting(
    storage: Storage, lease: PodLease, clock: ManualClock, verb: str
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = []
    for _ in range(3):
        ids.append(await store(storage, "a"))
        clock.advance(MICROSECOND)
    blocker = await store(storage, "", name="", priority=-100, delay=SECOND)
    [first] = await claim(storage, lease, limit=2)
    await finish(storage, first, done())
    clock.advance(SECOND)
    # Takes the only place there is, beside the job that has become ready.
    assert ids_of(await claim(storage, lease, limit=1)) == [blocker]
    which = JobFilter(ids=(ids[1],))
    if verb == "cancel":
        assert (await storage.jobs.cancel(which)).changed == (ids[1],)
    elif verb == "delete":
        assert (await storage.jobs.delete(which)).changed == (ids[1],)
    else:
        await postpone(storage, ids[1])
    assert ids_of(await claim(storage, lease, limit=2)) == [ids[2]]


async def test_a_job_on_hold_is_seen_and_acted_on_as_any_that_waits(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = sorted([await store(storage, "a") for _ in range(4)])
    [first] = await claim(storage, lease, limit=4)
    job = await get_job(storage, ids[1])
    assert (job.hold, job.status, job.limit_name, job.limit_key) == (
        *(Hold.LIMIT, JobStatus.PENDING),
        *(NAME, "a"),
    )
    assert (await storage.jobs.cancel(JobFilter(ids=(ids[1],)))).changed == (ids[1],)
    assert (await storage.jobs.delete(JobFilter(ids=(ids[2],)))).changed == (ids[2],)
    # A pod that registers frees what was held for its kind, not for a limit.
    other = await register(storage, lease_for=HOUR)
    assert not await claim(storage, other, limit=4)
    await finish(storage, first, done())
    assert ids_of(await claim(storage, lease, limit=4)) == [ids[3]]


async def test_a_requeued_or_restored_job_waits_for_its_key_again(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = sorted([await store(storage, "a") for _ in range(2)])
    [first] = await claim(storage, lease, limit=4)
    which = JobFilter(ids=(ids[1],))
    assert (await storage.jobs.cancel(which)).changed == (ids[1],)
    assert (await storage.jobs.restore(which)).changed == (ids[1],)
    assert not await claim(storage, lease, limit=4)
    await finish(storage, first, done())
    assert ids_of(await claim(storage, lease, limit=4)) == [ids[1]]


async def test_expired_jobs_on_hold_take_no_place(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    for _ in range(3):
        await store(storage, "a", expires_at=clock.now() + SECOND)
        clock.advance(MICROSECOND)
    last = await store(storage, "a")
    [first] = await claim(storage, lease, limit=4)
    clock.advance(2 * SECOND)
    await finish(storage, first, done())
    assert ids_of(await claim(storage, lease, limit=1)) == [last]
    assert await storage.jobs.expire(10) == 2


async def test_a_raised_limit_lets_the_next_jobs_run_and_a_lowered_one_stops_none(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = sorted([await store(storage, "a") for _ in range(5)])
    running = await claim(storage, lease, limit=5)
    await storage.config.set_limit(QUEUE, NAME, 3)
    running += await claim(storage, lease, limit=5)
    assert ids_of(running) == ids[:3]
    await storage.config.set_limit(QUEUE, NAME, 2)
    await finish(storage, running[0], done())
    assert not await claim(storage, lease, limit=5)
    await finish(storage, running[1], done())
    assert ids_of(await claim(storage, lease, limit=5)) == [ids[3]]


async def test_without_its_limit_a_key_has_no_bound(storage: Storage, lease: PodLease) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    ids = {await store(storage, "a") for _ in range(5)}
    claims = await claim(storage, lease, limit=5)
    await storage.config.delete_limit(QUEUE, NAME)
    while more := await claim(storage, lease, limit=2):
        claims += more
    assert {*ids_of(claims)} == ids
    with pytest.raises(NotFound):
        await storage.config.delete_limit(QUEUE, NAME)


async def test_code_declares_a_limit_and_an_operators_number_stays(storage: Storage) -> None:
    config = storage.config
    await config.ensure_limits(QUEUE, {NAME: 3, "tests.other": 1})
    await config.ensure_limits(QUEUE, {NAME: 4, "tests.other": 1})
    await config.set_limit("another", NAME, 7)
    await config.set_limit(QUEUE, "tests.other", 9)
    await config.ensure_limits(QUEUE, {NAME: 5, "tests.other": 2})
    assert await config.limits() == [
        LimitState(queue="another", name=NAME, at_most=7, overridden=True),
        LimitState(queue=QUEUE, name=NAME, at_most=5, overridden=False),
        LimitState(queue=QUEUE, name="tests.other", at_most=9, overridden=True),
    ]
    await config.delete_queue("another")
    assert {state.queue for state in await config.limits()} == {QUEUE}
    for wrong in (0, -1, True, 2**63):
        with pytest.raises(InvalidInput):
            await config.set_limit(QUEUE, NAME, wrong)
        with pytest.raises(InvalidInput):
            await config.ensure_limits(QUEUE, {"tests.new": 1, NAME: wrong})
    assert len(await config.limits()) == 2


@pytest.mark.parametrize("change", ["done", "dead", "released", "crashed", "set", "deleted"])
async def test_whatever_makes_room_wakes_the_queue(
    storage: Storage, lease: PodLease, clock: ManualClock, change: str
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    for _ in range(2):
        await store(storage, "a")
    [first] = await claim(storage, lease, limit=2)
    clock.advance(2 * SECOND)
    while await storage.jobs.wait_for_work(MINE, SECOND / 50):
        pass
    match change:
        case "done":
            await finish(storage, first, done())
        case "dead":
            await finish(storage, first, dead())
        case "released":
            await storage.jobs.release([first.claim])
        case "crashed":
            await revive(storage, first, crashed(delay=HOUR), stale_after=SECOND)
        case "set":
            await storage.config.set_limit(QUEUE, NAME, 2)
        case _:
            await storage.config.delete_limit(QUEUE, NAME)
    async with asyncio.timeout(60):
        while QUEUE not in (await storage.jobs.wait_for_work(MINE, 30 * SECOND)).queues:
            pass
    assert await claim(storage, lease, limit=2)


async def test_a_limit_counts_within_its_queue(storage: Storage) -> None:
    lease = await register(storage, queues=(QUEUE, "another"), lease_for=HOUR)
    for queue in (QUEUE, "another"):
        await storage.config.ensure_limits(queue, {NAME: 1})
        for _ in range(2):
            await store(storage, "a", queue=queue)
    for queue in (QUEUE, "another"):
        assert len(await claim(storage, lease, limit=5, queue=queue)) == 1


async def test_a_claim_says_that_more_may_follow_behind_jobs_it_put_on_hold(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    for _ in range(35):
        await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key="a") for _ in range(100)])
    assert await claim(storage, lease)
    clock.advance(MICROSECOND)
    free = await store(storage, "", name="")
    demand = Demand(worker_ids=("w1", "w2"), limit=2, kinds=frozenset({KIND}))
    answers: list[Exchange] = []
    while not answers or not answers[-1].claimed:
        answers.append(await storage.jobs.exchange(QUEUE, [], demand, lease))
        assert answers[-1].claimed or answers[-1].goes_on
    assert ids_of(list(answers[-1].claimed)) == [free]
    assert len(answers) > 1
    last = await storage.jobs.exchange(QUEUE, [], demand, lease)
    assert (last.claimed, last.goes_on) == ((), False)


async def test_a_claim_of_very_many_keys_with_room_leaves_none_without_saying_so(
    storage: Storage, lease: PodLease
) -> None:
    many = 600
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    jobs = [new_job(limit_name=NAME, limit_key=f"k{n}") for n in range(many)]
    await storage.jobs.enqueue(jobs)
    first = await claim(storage, lease, limit=many)
    await storage.jobs.enqueue([structs.replace(job, id=new_job_id()) for job in jobs])
    await storage.jobs.finalize([Finalization(each.claim, done()) for each in first])
    wanted = Demand(worker_ids=(), limit=many, kinds=frozenset({KIND}))
    second: list[ClaimedJob] = []
    while len(second) < many:
        answer = await storage.jobs.exchange(QUEUE, [], wanted, lease)
        assert answer.claimed
        second += answer.claimed
        assert len(second) == many or answer.next_due_in == timedelta(0)
    assert (await storage.jobs.exchange(QUEUE, [], wanted, lease)).next_due_in is None


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_jobs_that_crashed_keep_none_behind_from_a_pod_without_a_free_worker(
    storage: Storage, lease: PodLease, number: int
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await storage.jobs.enqueue([new_job(priority=-2) for _ in range(number)])
    for each in await claim(storage, lease, limit=number):
        assert await revive(storage, each, stale_after=timedelta(0))
    behind = {await store(storage, "", name="", priority=-1), await store(storage, "a")}
    demand = Demand(worker_ids=(), limit=2, kinds=frozenset({KIND}))
    claims: list[ClaimedJob] = []
    for _ in range(2):
        answer = await storage.jobs.exchange(QUEUE, [], demand, lease)
        claims += answer.claimed
        if len(claims) == len(behind) or answer.next_due_in != timedelta(0):
            break
    assert {*ids_of(claims)} == behind


async def test_many_callers_at_once_never_pass_a_limit(storage: Storage) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    ids = {await store(storage, f"k{n % 3}") for n in range(36)}
    keys = {job.id: job.limit_key for job in (await storage.jobs.get([*ids])).values()}
    running: Counter[str] = Counter()
    passed: list[str] = []
    ended: list[JobId] = []

    async def one_pod() -> None:
        lease = await register(storage, lease_for=HOUR)
        while len(ended) < len(ids):
            claims = await claim(storage, lease, limit=2)
            # A claim counts from the answer on, until the end is sent: never for longer than in
            # the store.
            running.update(keys[each] for each in ids_of(claims))
            passed.extend(key for key, count in running.items() if count > 2)
            # Others claim meanwhile.
            for claimed in claims:
                await get_job(storage, claimed.claim.job_id)
            for claimed in claims:
                running[keys[claimed.claim.job_id]] -= 1
                await finish(storage, claimed, done())
                ended.append(claimed.claim.job_id)

    async with asyncio.timeout(120):
        await asyncio.gather(*(one_pod() for _ in range(6)))
    assert not passed
    assert sorted(ended) == sorted(ids)
