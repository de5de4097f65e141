"""Drills: an incident is seen in time, by its right name and begin, and ends by what is offered."""

from datetime import datetime, timedelta

import httpx
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.policy.judgement.problems.judging import RULES
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.problems.conftest import Fleet
from tests.support.factories import enqueue_one
from tests.support.incidents import API, INCIDENTS, Drill
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
