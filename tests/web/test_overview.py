"""The Overview: what lies ahead, what is usual, objectives, and the problem before."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from forge_jobs.web.pages import judged
from tests.support.backends import BACKENDS, pass_on
from tests.support.factories import claim_one, enqueue_one, error, failed, finish, register
from tests.web.conftest import ADA, client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock(NOW)


def figure(text: str, name: str) -> str:
    """Return the value and the note of a number at the top, without the marks."""
    part = text.partition(f"<dt>{name}</dt><dd>")[2].partition("</dd>")[0]
    words = [piece.partition(">")[2].strip() for piece in part.split("<")[1:]]
    return " ".join(word for word in words if word)


async def died(storage: Storage, at: datetime, count: int) -> None:
    """Tell of jobs that died in a minute."""
    sample = FailureSample(
        queue="gh",
        group="g1",
        kind="gh.sync",
        type="ValueError",
        message="card",
        minute=at.replace(second=0, microsecond=0),
        first_at=at,
        last_at=at,
        dead=count,
    )
    assert not await storage.jobs.add_failures([sample])


@pytest.fixture(params=sorted(BACKENDS))
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    """Return an empty store on each backend, under a clock that the test moves."""
    async with BACKENDS[request.param](tmp_path, clock) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


async def test_what_lies_ahead_and_what_is_usual(store: Storage) -> None:
    await store.config.set_queue("gh", QueueChange(max_workers=2))
    lease = await register(store, queues=("gh",))
    for delay in (timedelta(minutes=5), timedelta(hours=2)):
        await enqueue_one(store, queue="gh")
        claimed = await claim_one(store, lease, queue="gh")
        await finish(store, claimed, failed(delay, error=error("no")))
    await enqueue_one(store, queue="gh", delay=timedelta(hours=3))
    await enqueue_one(store, queue="gh", delay=timedelta(hours=30))
    for day in range(1, 8):
        await died(store, NOW - timedelta(days=day, hours=2), 3)
    await died(store, NOW - timedelta(hours=2), 11)
    async with client_of(dashboard(store, authorize=lambda _: ADA)) as client:
        text = await page(client, "/")
        assert figure(text, "Retries within the hour") == "1"
        assert figure(text, "Scheduled next") == "in 3 h tests.noop"
        assert figure(text, "Dead in 24 h") == "11 usually 3"
        assert '<a class="bad"' in text.partition("Dead in 24 h")[2][:60]
        for q in ("status:failed+due:>-1h", "status:pending+due:<0s", "status:dead+finished:<24h"):
            await page(client, f"/jobs?q={q}")
        assert (await page(client, "/jobs?q=status:failed+due:>-1h")).count('name="id"') == 1
        assert (await page(client, "/jobs?q=status:pending+due:<0s")).count('name="id"') == 2
    some = Actor(name="eve", access=Access(queues=frozenset({"gh"})))
    async with client_of(dashboard(store, authorize=lambda _: some)) as client:
        assert "Dead in 24 h" not in await page(client, "/")


async def test_a_queue_shows_its_objective(sqlite: Storage) -> None:
    for name in ("gh", "mail"):
        await sqlite.config.set_queue(name, QueueChange(objective="90% within 30s"))
    minute = (await sqlite.cron.now()).replace(second=0, microsecond=0) - timedelta(minutes=3)
    late, early = bucket_of(100.0), bucket_of(1.0)
    flow = FlowSample(
        queue="gh",
        kind="a",
        minute=minute,
        counts={"succeeded": 100},
        delay=Histogram({early: 95, late: 5}),
        processing=Histogram({early: 100}),
        total=Histogram({early: 100}),
    )
    assert not await sqlite.jobs.add_flows([flow])
    some = Actor(name="eve", access=Access(queues=frozenset({"mail"})))
    who = [ADA]
    async with client_of(dashboard(sqlite, authorize=lambda _: who[0])) as client:
        for who[0], seen in ((ADA, True), (some, False)):
            for path in ("/", "/queues"):
                text = await page(client, path)
                assert ("95.0 %" in text) is seen
                assert ("budget 50 %" in text) is seen
                assert "no job" in text


async def test_what_is_ahead_is_read_for_all_viewers_together(
    sqlite: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with client_of(app) as client:
        await page(client, "/")
        await enqueue_one(sqlite, delay=timedelta(hours=3))
        monkeypatch.setattr(judged, "FRESH", 0.0)
        assert "tests.noop" not in figure(await page(client, "/"), "Scheduled next")
        monkeypatch.setattr(judged, "GLANCED", 0.0)
        assert "tests.noop" in figure(await page(client, "/"), "Scheduled next")


async def test_the_last_problem_is_named_when_there_is_none(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "FRESH", 0.0)
    who = [ADA]
    async with BACKENDS["sqlite"](tmp_path, clock) as storage:
        job_id = await enqueue_one(storage, queue="mail")
        app = dashboard(storage, authorize=lambda _: who[0])
        async with client_of(app) as client:
            clock.advance(600)
            text = await page(client, "/")
            assert "Queue mail is not served" in text
            assert "Last problem" not in text
            clock.advance(120)
            await storage.jobs.cancel(JobFilter(ids=(job_id,)))
            text = await page(client, "/")
            assert "Nothing needs you" in text
            assert "Last problem: Queue mail is not served" in text
            assert "after 12 min" in text
            assert 'href="/?at=2026-11-24T12%3A41Z"' in text
            await page(client, "/?at=2026-11-24T12%3A41Z")
            # What concerns the whole store is not for who may see one queue.
            who[0] = Actor(name="eve", access=Access(queues=frozenset({"gh"})))
            assert "Last problem" not in await page(client, "/")
