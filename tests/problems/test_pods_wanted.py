"""How many pods a queue wants for its own objective: one number on all surfaces."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.objectives import parse_objective
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.series import Depth, FlowSample
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.metrics.exposition import exposition
from forge_jobs.operating.metrics.reading import Scraper
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.problems.conftest import MINUTE, Fleet
from tests.support.factories import KIND, QUEUE, claim, done, enqueue_one, finish
from tests.support.simulated_queues import histogram
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

AIM = "95% within 30s"
ADA = Actor(name="ada", access=ALL)


async def roll_up(storage: Storage) -> None:
    while await storage.jobs.roll_up(100):
        pass


async def a_minute(storage: Storage, clock: ManualClock, jobs: int, seconds: float) -> None:
    """Let a minute pass in which so many jobs came, and ran for so long."""
    minute = clock.now().replace(second=0, microsecond=0)
    for _ in range(jobs):
        await enqueue_one(storage)
    runs = histogram([seconds] * jobs)
    sample = FlowSample(
        queue=QUEUE,
        kind=KIND,
        minute=minute,
        counts={"succeeded": jobs},
        delay=histogram([1.0] * jobs),
        processing=runs,
        total=runs,
    )
    assert await storage.jobs.add_flows([sample]) == []
    clock.advance(MINUTE)
    await roll_up(storage)


async def wanted(storage: Storage, objective: str = "") -> int:
    aim = parse_objective(objective) if objective else None
    async with Operator(storage, ADA) as operator:
        return (await operator.desired_pods(QUEUE, aim)).pods


async def test_every_surface_has_the_same_number_of_pods(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start(slots=2)
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=40, objective=AIM))
    clock.advance(60 - clock.now().second - clock.now().microsecond / 1e6)
    for _ in range(4):
        await a_minute(storage, clock, 15, 60.0)
    clock.advance(MINUTE)

    pods = await wanted(storage)

    # What waits, a minute each, is to start within half a minute: all that max_workers can use.
    assert pods == 20
    async with Operator(storage, ADA) as operator:
        [stands] = (await operator.list_objectives()).objectives
    assert stands.desired.pods == pods
    text = stands.desired.text
    assert "60 jobs due. Rests on the last 15 min: 4 due a minute, 57.7 s a run" in text
    told = exposition(await Scraper(Reader(storage)).read()).decode()
    assert f'forge_jobs_desired_pods{{queue="{QUEUE}"}} {pods}.0' in told
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as caller:
        answer = await caller.get(f"/api/v1/queues/{QUEUE}/desired-pods")
        assert (answer.status_code, answer.json()["pods"]) == (200, pods)
        page = await caller.get(f"/queues/{QUEUE}", headers={"Accept": "text/html"})
    assert f"<dt>Pods wanted</dt><dd>{pods}</dd>" in page.text
    assert text in page.text
    # Another objective than the queue's own is asked for by name.
    assert await wanted(storage, "95% within 2h") < pods


async def test_what_waited_lately_keeps_the_pods(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    leases = [await fleet.start(slots=1) for _ in range(3)]
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=3, objective=AIM))
    clock.advance(60 - clock.now().second - clock.now().microsecond / 1e6)
    await a_minute(storage, clock, 6, 10.0)
    await storage.jobs.record_depths({QUEUE: Depth(due=20, granted=1, max_workers=3)})
    for claimed in await claim(storage, leases[0], limit=6):
        assert await finish(storage, claimed, done())
    for _ in range(10):
        assert await wanted(storage) == 3
        clock.advance(MINUTE)
    clock.advance(10 * MINUTE)
    assert await wanted(storage) == 1
    async with Operator(storage, ADA) as operator:
        # Reads hours for the standing, of which the load is a quarter of an hour.
        [stands] = (await operator.list_objectives()).objectives
    assert stands.desired.pods == 1


async def test_a_queue_without_an_objective_has_no_number(storage: Storage, fleet: Fleet) -> None:
    await fleet.start()
    with pytest.raises(InvalidInput, match=f"objective: is missing, and queue '{QUEUE}' has none"):
        await wanted(storage)
    told = exposition(await Scraper(Reader(storage)).read()).decode()
    assert "forge_jobs_desired_pods{" not in told
    assert await wanted(storage, AIM) == 1
