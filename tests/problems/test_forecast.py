"""``explain`` says when a job starts that waits for a slot, on each store."""

from datetime import timedelta

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.forecasts import measured_load
from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.metrics import LatencySample
from forge_jobs.model.queues import LinePlace
from forge_jobs.operating.access import Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.policy.explanations import Reason
from forge_jobs.policy.judgement.what_if import Verdict
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.jobs import read as redis_read
from forge_jobs.storage.sql.jobs import read as sql_read
from tests.problems.conftest import HOUR, MINUTE, Fleet
from tests.support.factories import QUEUE, claim, done, enqueue_one, finish, held
from tests.support.simulated_queues import histogram

pytestmark = pytest.mark.anyio


async def test_a_job_that_waits_for_a_slot_is_told_when_it_starts(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=2)
    for _ in range(2 + 10):
        await enqueue_one(storage)
    [ended] = await claim(storage, lease)
    assert await finish(storage, ended, done())
    runs = histogram([10.0] * 100)
    sample = LatencySample(queue=QUEUE, minute=clock.now(), processing=runs, total=runs)
    await storage.jobs.add_latencies(lease.host_id, [sample])
    clock.advance(MINUTE)
    claims = [held(each, "worker") for each in await claim(storage, lease, limit=2)]
    await storage.jobs.heartbeat(lease, claims, 24 * HOUR)
    waiting = await enqueue_one(storage)
    client = JobClient(storage)

    told = await client.explain(waiting)

    assert (told.reason, told.ahead) == (Reason.SLOTS_BUSY, 9)
    assert told.starts_after is not None
    assert told.starts_before is not None
    # Ten runs of ten seconds have to end, two at a time.
    assert 20 <= (told.starts_after - clock.now()).total_seconds() <= 45
    assert 50 <= (told.starts_before - clock.now()).total_seconds() <= 70
    assert "; 9 due before, starts in " in told.text
    assert told.rests_on.startswith("9 due before, 2 at once, the last 15 min: ")
    assert (await client.explain(claims[0].claim.job_id)).ahead is None
    clock.advance(HOUR)
    much_later = await client.explain(waiting)
    assert (much_later.ahead, much_later.starts_after) == (9, None)
    assert "9 due before" in much_later.text


async def test_the_load_of_a_queue_is_measured(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=3)
    await enqueue_one(storage)
    clock.advance(HOUR)
    for _ in range(5):
        await enqueue_one(storage)
    clock.advance(MINUTE)
    await claim(storage, lease, limit=2)

    load = await measured_load(storage, QUEUE)

    assert (load.over, load.arrived) == (timedelta(minutes=15), 5)
    assert (load.waiting, load.running, load.max_workers) == (4, 2, 3)
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        await measured_load(storage, "nowhere")


async def test_no_more_jobs_are_counted_than_anybody_reads(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (redis_read, sql_read):
        monkeypatch.setattr(module, "MOST_AHEAD", 3)
    ids = [await enqueue_one(storage) for _ in range(5)]
    last = await enqueue_one(storage, priority=1)

    places = [await storage.jobs.place(QUEUE, job_id) for job_id in (ids[3], ids[4], last)]

    assert places == [
        LinePlace(ahead=3),
        LinePlace(ahead=3, is_more=True),
        LinePlace(ahead=3, is_more=True),
    ]
    assert str(places[1]) == "more than 3"


async def test_what_becomes_of_a_queue_with_other_numbers(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=2)
    for _ in range(900):
        await enqueue_one(storage)
    runs = histogram([10.0] * 100)
    sample = LatencySample(queue=QUEUE, minute=clock.now(), processing=runs, total=runs)
    await storage.jobs.add_latencies(lease.host_id, [sample])
    clock.advance(MINUTE)

    async with Operator(storage, Actor(name="Ada")) as operator:
        now = await operator.what_if(QUEUE)
        more = await operator.what_if(QUEUE, max_workers=40)
        fewer = await operator.what_if(QUEUE, max_workers=40, arrivals=0)
        with pytest.raises(NotFound, match="no queue 'nowhere'"):
            await operator.what_if("nowhere")
        with pytest.raises(InvalidInput, match="max_workers"):
            await operator.what_if(QUEUE, max_workers=-1)

    # A job arrives in a second, and takes ten.
    assert (now.verdict, more.verdict) == (Verdict.GROWS, Verdict.CLEARS)
    assert now.grows_by is not None
    assert 40 <= now.grows_by <= 56
    assert more.clears_in is not None
    assert fewer.clears_in is not None
    assert fewer.clears_in < more.clears_in
