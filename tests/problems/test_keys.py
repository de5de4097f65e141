"""Keys that starve: jobs wait at a full key, and none starts there. And keys that are only busy."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.looks import JobsAsked, JobsLook
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.limits import UNKNOWN_RUN
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, Fleet
from tests.support.drills import Drill
from tests.support.factories import QUEUE, claim, done, enqueue_one, finish

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
