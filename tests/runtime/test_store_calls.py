"""Calls of the store by name, as a pod counts them."""

from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import HandlerRegistry, JobClient, QueueRuntime, QueueSettings, RuntimeSettings
from forge_jobs.clock import ManualClock
from forge_jobs.errors import NotFound, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.processes import PodState
from forge_jobs.runtime.shared.store_calls import MOST_VERBS, CallMeter, metered
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.faulty import Faults, faulty
from tests.support.waiting import wait_until

QUICK = timedelta(milliseconds=50)

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


def test_calls_are_counted_by_verb_with_percentiles_and_errors() -> None:
    meter = CallMeter()
    for number in range(100):
        meter.observe("exchange", 0.002 if number < 98 else 0.9)
    meter.observe("counts", 0.010, failed=True)
    exchange, counts = meter.take()
    assert (exchange.name, exchange.count, exchange.errors) == ("exchange", 100, 0)
    assert exchange.p50_ms == pytest.approx(2, rel=0.05)
    assert exchange.p99_ms == pytest.approx(900, rel=0.05)
    assert (counts.name, counts.count, counts.errors) == ("counts", 1, 1)
    assert meter.take() == ()


def test_of_many_verbs_the_dearest_stay() -> None:
    meter = CallMeter()
    for number in range(MOST_VERBS + 5):
        meter.observe(f"verb{number:02}", 0.001 * (number + 1))
    names = [each.name for each in meter.take()]
    assert names == [f"verb{number:02}" for number in range(MOST_VERBS + 4, 4, -1)]


async def test_a_call_counts_once_and_an_answer_is_no_error(tmp_path: Path) -> None:
    clock = ManualClock()
    async with BACKENDS["sqlite"](tmp_path, clock) as plain:
        faults = Faults()
        meter = CallMeter()
        storage = metered(faulty(plain, faults), meter, clock=clock)
        await storage.jobs.list(JobFilter())
        with pytest.raises(NotFound):
            await storage.config.set_paused("no-such-queue", True)
        faults.down = True
        for _ in range(2):
            with pytest.raises(Unavailable):
                await storage.jobs.list(JobFilter())
        faults.down = False
        found = {each.name: (each.count, each.errors) for each in meter.take()}
        assert found == {"list": (3, 2), "set_paused": (1, 0)}
        # A wait takes as long as nothing happens, which says nothing about the store.
        await storage.jobs.wait_for_work(frozenset(), timedelta(0))
        assert meter.take() == ()


async def test_a_pod_tells_its_calls_once_a_minute(tmp_path: Path) -> None:
    handlers = HandlerRegistry()

    @handlers.job("tests.noop", queue="mail")
    async def noop() -> None:
        pass

    settings = RuntimeSettings(rollup_interval=QUICK)
    async with BACKENDS["sqlite"](tmp_path, None) as storage:
        runtime = QueueRuntime(storage, handlers, settings=settings)
        async with (
            runtime.with_queues(mail=QueueSettings()).start(),
            JobClient(storage, handlers) as client,
        ):
            await client.enqueue(noop.request())
            await wait_until(lambda: _have_told(storage), description="the pod has told its calls")


async def _have_told(storage: Storage) -> bool:
    pods: list[PodState] = await storage.procs.pods()
    calls = [call for pod in pods if pod.gauges for call in pod.gauges.calls]
    return any(each.count and each.p99_ms >= each.p50_ms > 0 for each in calls)


async def test_what_a_view_offers_is_looked_up_once(tmp_path: Path) -> None:
    """A pickup asks for several: a look at each cost a fourteenth of all calls of a pickup."""
    async with BACKENDS["sqlite"](tmp_path, None) as plain:
        jobs = metered(plain, CallMeter()).jobs
        assert jobs.exchange_at_once == plain.jobs.exchange_at_once
        names = ("exchange_at_once", "exchange", "wait_for_work")
        first = [getattr(jobs, name) for name in names]
        assert set(names) <= vars(jobs).keys()
        assert [getattr(jobs, name) for name in names] == first
