"""Keys that starve: jobs wait at a full key, and none starts there. And keys that are only busy."""

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.looks import JobsAsked, JobsLook
from forge_jobs.model.queues import LimitHolders
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.limits import UNKNOWN_RUN
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.drills import Drill
from tests.support.factories import QUEUE, claim, done, enqueue_one, finish, held

pytestmark = pytest.mark.anyio

NAME = "hosts"


async def store(storage: Storage, key: str, **fields: object) -> JobId:
    return await enqueue_one(storage, limit_name=NAME, limit_key=key, **fields)


async def test_a_busy_key_with_a_long_line_is_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    for _ in range(20):
        await store(storage, "a")
    [running] = await claim(storage, lease, limit=5)
    for _ in range(10):
        clock.advance(4 * MINUTE)
        assert Code.KEY_STARVING not in await fleet.codes()
        assert await finish(storage, running, done())
        [running] = await claim(storage, lease, limit=5)
    clock.advance(UNKNOWN_RUN + 5 * MINUTE)
    assert Code.KEY_STARVING in await fleet.codes()


async def test_a_key_where_one_of_two_jobs_hangs_and_others_pass_is_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    for _ in range(20):
        await store(storage, "a")
    _, running = await claim(storage, lease, limit=5)
    for _ in range(10):
        clock.advance(10 * MINUTE)
        assert Code.KEY_STARVING not in await fleet.codes()
        assert await finish(storage, running, done())
        [running] = await claim(storage, lease, limit=5)


async def test_permits_that_long_runs_hold_are_named_while_others_pass(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=9)
    await storage.config.ensure_limits(QUEUE, {NAME: 2, "free": 2})
    await Drill(storage, fleet, clock).flow(delays=[1.0], runs=[30.0] * 20)
    for _ in range(20):
        await store(storage, "a")
    # A long run at a key without a line, and one without a limit, hold none up.
    await store(storage, "b")
    await enqueue_one(storage)
    begun = clock.now()
    hangs, running, *others = await claim(storage, lease, limit=9)
    assert len(others) == 2

    async def go_on() -> ClaimedJob:
        """End the job that goes on, and let the next one run."""
        assert await finish(storage, running, done())
        [following] = await claim(storage, lease, limit=9)
        still = [held(each, f"w{n}") for n, each in enumerate((hangs, *others))]
        await storage.jobs.heartbeat(lease, [*still, held(following, "w")], 24 * HOUR)
        return following

    for _ in range(3):
        running = await go_on()
        assert Code.KEY_STARVING not in await fleet.codes()
        clock.advance(3 * MINUTE)
    running = await go_on()
    clock.advance(2 * MINUTE)
    [found] = [each for each in await fleet.all() if each.code is Code.KEY_STARVING]
    assert (found.about, found.queue, found.jobs) == (f"{NAME} a", QUEUE, 14)
    assert abs(found.since - (begun + 5 * MINUTE)) < 20 * SECOND
    assert found.evidence.startswith(f"1 of 2 permits of key 'a' of the limit {NAME} of queue")
    assert f"Held by {hangs.claim.job_id} (" in found.why
    assert found.command == f"forge-jobs limits show {QUEUE} {NAME} --key a"
    told = await JobClient(storage).explain(await first_waiting(storage, "a"))
    assert "; 1 of 2 permits is held for far longer than such runs take: by job " in told.text
    assert hangs.claim.job_id in told.text
    assert told.help == found.command
    assert await finish(storage, hangs, done())
    assert Code.KEY_STARVING not in await fleet.codes()


async def first_waiting(storage: Storage, key: str) -> JobId:
    """Return the job that comes next at a key."""
    return JobId((await storage.config.limit_holders(QUEUE, NAME, key, limit=1)).waiting[0])


async def test_a_run_that_is_not_long_costs_a_look_nothing(
    storage: Storage, fleet: Fleet, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await fleet.start(slots=5)
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    await Drill(storage, fleet, clock).flow(delays=[1.0], runs=[30.0] * 20)
    for _ in range(20):
        await store(storage, "a")
    both = await claim(storage, lease, limit=5)
    await storage.jobs.heartbeat(lease, [held(each, each.claim.job_id) for each in both], HOUR)
    asked: list[str] = []
    holders = storage.config.limit_holders

    async def noted(queue: str, name: str, key: str, *, limit: int = 100) -> LimitHolders:
        asked.append(key)
        return await holders(queue, name, key, limit=limit)

    monkeypatch.setattr(storage.config, "limit_holders", noted)
    clock.advance(4 * MINUTE)
    await problems(storage)
    assert asked == []
    clock.advance(2 * MINUTE)
    await problems(storage)
    assert asked == ["a"]


async def test_runs_that_are_long_by_their_nature_are_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await Drill(storage, fleet, clock).flow(delays=[1.0], runs=[3600.0] * 20)
    await store(storage, "a")
    await store(storage, "a")
    begun = clock.now()
    await claim(storage, lease, limit=5)
    clock.advance(HOUR)
    assert Code.KEY_STARVING not in await fleet.codes()
    clock.advance(10 * MINUTE)
    [found] = [each for each in await fleet.all() if each.code is Code.KEY_STARVING]
    assert abs(found.since - (begun + HOUR)) < 4 * MINUTE
    assert "99 of 100 such runs take no longer than" in found.why


async def test_a_line_that_has_just_formed_is_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await Drill(storage, fleet, clock).flow(delays=[1.0], runs=[1.0] * 20)
    await store(storage, "a")
    await claim(storage, lease, limit=5)
    clock.advance(HOUR)
    await store(storage, "a")
    assert not await claim(storage, lease, limit=5)
    clock.advance(4 * MINUTE)
    assert Code.KEY_STARVING not in await fleet.codes()
    clock.advance(2 * MINUTE)
    assert Code.KEY_STARVING in await fleet.codes()


async def test_full_keys_without_a_line_are_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await store(storage, "a")
    await claim(storage, lease, limit=5)
    clock.advance(10 * HOUR)
    assert Code.KEY_STARVING not in await fleet.codes()


async def test_a_fleet_without_limits_by_key_reads_none(
    storage: Storage, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.start()
    await enqueue_one(storage)
    asked: list[JobsAsked] = []
    look = storage.jobs.look

    async def noted(what: JobsAsked) -> JobsLook:
        asked.append(what)
        return await look(what)

    monkeypatch.setattr(storage.jobs, "look", noted)
    await problems(storage)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await problems(storage)
    assert [each.limited for each in asked] == [(), (QUEUE,)]
