"""Drills: an incident is seen in time, by its right name and begin, and ends by what is offered."""

from datetime import datetime, timedelta

import httpx
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import StoreCall
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.schedules import Firing
from forge_jobs.model.series import Depth
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.policy.judgement.problems.judging import RULES
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.drills import API, Drill
from tests.support.factories import QUEUE, claim, done, enqueue_one, failed, finish, held
from tests.support.firings import a_spec
from tests.support.incidents import INCIDENTS
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

AFTER = {rule.code: rule.after for rule in RULES}
IN_TIME = timedelta(seconds=15)


async def seen(caller: httpx.AsyncClient) -> list[tuple[Code, datetime]]:
    """Return the problems that the HTTP API lists: code and begin."""
    answer = await caller.get(f"{API}/problems")
    assert answer.status_code == 200, answer.text
    return [
        (Code(each["code"]), datetime.fromisoformat(each["since"]))
        for each in answer.json()["problems"]
    ]


def test_every_code_has_a_drill() -> None:
    assert set(INCIDENTS) == set(Code)


@pytest.mark.parametrize("code", INCIDENTS)
async def test_an_incident_is_seen_in_time_and_ends(
    storage: Storage, fleet: Fleet, clock: ManualClock, code: Code
) -> None:
    drill = Drill(storage, fleet, clock)
    await fleet.start("steady")
    app = dashboard(storage, authorize=lambda _: Actor(name="ada", access=ALL))
    async with client_of(app) as caller:
        assert await seen(caller) == []
        planted = await INCIDENTS[code](drill)
        first = planted.since + AFTER[code]
        if clock.now() < first - IN_TIME:
            clock.advance(first - IN_TIME - clock.now())
            assert code not in [each for each, _ in await seen(caller)]
        clock.advance(max(first + planted.slack - clock.now(), timedelta(0)))
        listed = await seen(caller)
        [since] = [since for each, since in listed[:3] if each is code]
        assert abs(since - planted.since) <= planted.slack
        await planted.end(caller)
        assert code not in [each for each, _ in await seen(caller)]


async def test_an_empty_queue_beside_an_incident_is_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start("steady")
    planted = await INCIDENTS[Code.PAUSED_WITH_WORK](Drill(storage, fleet, clock))
    await storage.config.set_paused("steady", True)
    await enqueue_one(storage, queue="steady", delay=timedelta(days=1))
    clock.advance(planted.since + timedelta(hours=1) - clock.now())
    assert [each.queue for each in await fleet.all()] == ["default"]


@pytest.mark.long
async def test_ten_healthy_minutes_under_load_have_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    """Minutes of the store's clock: work in waves, a failure now and then, a schedule that fires.

    Looked at in every step, whatever is under way then.
    """
    drill = Drill(storage, fleet, clock)
    leases = [await fleet.start(slots=50), await fleet.start("steady", slots=5)]
    await storage.config.set_queue(QUEUE, QueueChange(objective="95% within 30s"))
    await storage.cron.put_schedule(a_spec(name="minutely"), clock.now() + MINUTE)
    begun = drill.next_minute()
    while clock.now() < begun + 10 * MINUTE:
        wave = 10 + 30 * (clock.now().second == 0)
        for _ in range(wave):
            await enqueue_one(storage)
        assert await fleet.codes() == []
        claimed = await claim(storage, leases[0], limit=wave + 5)
        await storage.jobs.heartbeat(leases[0], [held(each, "w") for each in claimed], 24 * HOUR)
        assert await fleet.codes() == []
        clock.advance(3 * SECOND)
        for number, each in enumerate(claimed):
            end = failed(9 * SECOND) if number == 3 else done()
            assert await finish(storage, each, end)
        assert await fleet.codes() == []
        await drill.flow(delays=[0.1] * wave, runs=[3.0] * wave)
        clock.advance(12 * SECOND)
        if clock.now().second == 0:
            calls = (StoreCall("exchange", 500, 1, 3.0, 40.0),)
            for lease in leases:
                await drill.gauges(lease, calls=calls, pool_size=5, pool_in_use=2, pool_waits=1)
            await drill.roll_up()
            await storage.jobs.record_depths({QUEUE: Depth(due=1, granted=50, max_workers=50)})
            [schedule] = await storage.cron.schedules()
            fired = Firing(
                name="minutely", version=schedule.version, jobs=(), next_at=clock.now() + MINUTE
            )
            assert await storage.cron.fire([fired]) == [True]
        assert await fleet.codes() == []
