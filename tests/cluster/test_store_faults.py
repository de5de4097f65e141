"""A server that goes away, in the ways that leave a pod or a caller in doubt."""

import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus, open_storage
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Job
from forge_jobs.storage.protocols import Storage
from tests.chaos.every_store import STORES
from tests.chaos.stores import ServerStore
from tests.support.backends import BACKENDS
from tests.support.factories import claims_kept
from tests.support.ledger import Ledger, Run
from tests.support.pods import Fleet, quick_settings
from tests.support.runtimes import in_progress
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

QUEUE = {"work": 2}
HELD_BACK = 0.3
RESOLVED_WITHIN = 40.0
"""Seconds: ten that are promised, the rest for a loaded machine. What nothing wakes looks
again after a minute."""


@pytest.fixture(params=[name for name in ("postgres", "redis") if name in BACKENDS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServerStore]:
    """A durable server for one test, with proxies before it."""
    made = STORES[request.param](tmp_path)
    assert isinstance(made, ServerStore)
    async with made.running():
        yield made


@pytest.fixture
def url(store: ServerStore) -> str:
    return store.url


def jobs_of(ledger: Path, count: int, seconds: float = 0.0) -> list[EnqueueRequest]:
    payload = {"ledger": str(ledger), "seconds": seconds}
    return [EnqueueRequest("ledger.work", payload, queue="work")] * count


async def all_done(storage: Storage) -> list[Job]:
    """Return every job of the queue once all are done, bounded by the time of a fault."""

    async def look() -> bool:
        counts = (await storage.jobs.counts(["work"]))["work"].by_status
        return sum(counts.values()) == counts.get(JobStatus.DONE, 0)

    await wait_until(look, description="every job is done", timeout=RESOLVED_WITHIN)
    page = await storage.jobs.list(JobFilter(queues=("work",)), limit=1_000)
    jobs = await storage.jobs.get([job.id for job in page.jobs])
    return list(jobs.values())


def runs(ledger: Path, process_id: int) -> list[Run]:
    return [run for run in Ledger.read(ledger).runs if run.process_id == process_id]


@pytest.mark.daily
async def test_a_pod_that_is_cut_off_stops_its_handlers_before_others_take_their_jobs(
    store: ServerStore, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    between = store.proxies[0]
    cut_off = pods.start(QUEUE, url=between.url)
    payload = {"ledger": str(ledger), "seconds": 60.0}
    request = EnqueueRequest("ledger.linger", payload, queue="work")
    outcomes = await client.enqueue_many([request] * 2)
    await wait_until(lambda: len(runs(ledger, cut_off.process_id)) == 2, description="both run")

    between.freeze()
    other = pods.start(QUEUE)
    await wait_until(
        lambda: len(Ledger.read(ledger).ended()) == 2, description="they end on the other pod"
    )
    between.heal()
    other.send(signal.SIGTERM)
    assert await other.wait() == 0
    await client.enqueue_many(jobs_of(ledger, 2))
    done = await all_done(storage)

    lost = {outcome.job_id for outcome in outcomes}
    first = [run for run in runs(ledger, cut_off.process_id) if run.job_id in lost]
    assert [run.cut_ns is not None for run in first[:2]] == [True, True]
    assert Ledger.read(ledger).overlaps() == []
    assert {(job.attempt, job.crashes) for job in done if job.id in lost} == {(2, 1)}
    assert await claims_kept(storage, "work") == len(done) + len(lost)
    assert len(runs(ledger, cut_off.process_id)) == 4, "it goes on with other work"


@pytest.mark.daily
async def test_lost_replies_are_made_good_without_a_crash_or_a_second_job(
    store: ServerStore, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    to_caller, to_pod = store.proxies
    # So long a lease that slow replies cost none: nothing here may be taken for a crash.
    settings = quick_settings(lease=timedelta(seconds=20), fence_margin=timedelta(seconds=1))
    pod = pods.start(QUEUE, settings, url=to_pod.url)
    await client.enqueue_many(jobs_of(ledger, 2))
    await wait_until(lambda: len(Ledger.read(ledger).ended()) == 2, description="two ran")
    # Held back for so long that a look sees the effect before the reply has passed.
    for between in store.proxies:
        between.slow_down(replies=HELD_BACK)

    async with (
        await open_storage(to_caller.url) as caller,
        JobClient(caller) as unlucky,
        anyio.create_task_group() as group,
    ):
        group.start_soon(unlucky.enqueue_many, jobs_of(ledger, 20))
        await wait_until(lambda: _has_jobs(storage, 22), description="the store has the jobs")
        to_caller.cut()
        to_caller.heal()
    await wait_until(lambda: in_progress(storage, "work"), description="the store gave jobs out")
    to_pod.cut()
    to_pod.heal()
    done = await all_done(storage)

    assert len(done) == 22
    assert {(job.attempt, job.crashes) for job in done} == {(1, 0)}
    assert pod.exit_code is None
    assert "but the reply was lost" in pods.log.read_text(), "a reply was lost"


async def _has_jobs(storage: Storage, count: int) -> bool:
    counts = await storage.jobs.counts(["work"])
    return "work" in counts and sum(counts["work"].by_status.values()) == count


async def test_sigterm_while_the_store_is_away_ends_in_time_and_loses_no_job(
    store: ServerStore, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    settings = quick_settings()
    between = store.proxies[0]
    await client.enqueue_many(jobs_of(ledger, 6, seconds=0.5))
    pod = pods.start(QUEUE, settings, url=between.url)
    await wait_until(lambda: len(runs(ledger, pod.process_id)) == 2, description="two run")

    between.refuse()
    pod.send(signal.SIGTERM)

    assert await pod.wait(settings.grace.total_seconds() + 1) == 1, "it says what it left behind"
    pods.start(QUEUE, settings)
    done = await all_done(storage)
    assert len(done) == 6
    assert max(job.crashes for job in done) == 1
    assert Ledger.read(ledger).overlaps() == []


async def test_sigterm_while_the_store_is_slow_hands_back_what_used_up_the_grace(
    store: ServerStore, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    between = store.proxies[0]
    [outcome] = await client.enqueue_many(jobs_of(ledger, 1, seconds=3600))
    # The store has longer than in the product: on a loaded machine its answers are later still.
    settings = quick_settings(grace=timedelta(seconds=0.5))
    pod = pods.start(QUEUE, settings, url=between.url, to_store=60.0)
    await wait_until(lambda: len(runs(ledger, pod.process_id)) == 1, description="it runs")

    # A transaction of PostgreSQL is several round trips, a script of Redis one.
    between.slow_down(replies=0.06 if store.url.startswith("postgres") else 0.2)
    pod.send(signal.SIGTERM)

    assert await pod.wait() == 0, "it left nothing behind"
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert await storage.procs.pods() == []


async def test_a_pod_that_starts_before_its_store_begins_when_it_is_there(
    store: ServerStore, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    await client.enqueue_many(jobs_of(ledger, 3))
    store.server.kill()
    pod = pods.start(QUEUE)
    await wait_until(
        lambda: pods.log.exists() and "not ready" in pods.log.read_text(),
        description="it finds no store",
    )

    store.server.start()

    assert len(await all_done(storage)) == 3
    assert pod.exit_code is None
