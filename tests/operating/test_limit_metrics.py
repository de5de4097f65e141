"""Limits in the metrics for Prometheus: by limit, and never by key."""

from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import PodGauges, RateGauge
from forge_jobs.model.queues import RateLimit
from forge_jobs.operating.metrics.exposition import exposition
from forge_jobs.operating.metrics.reading import MOST_LABELLED, Scraper
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.factories import (
    QUEUE,
    claim,
    claim_one,
    enqueue_one,
    finish,
    rate_limited,
    register,
)

pytestmark = pytest.mark.anyio

NAME = "hosts"
Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def figures(scraper: Scraper) -> Figures:
    """Return what a Prometheus client understands of limits."""
    text = exposition(await scraper.read()).decode()
    return {
        (
            sample.name.removeprefix("forge_jobs_"),
            tuple(sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "_limit_" in sample.name
    }


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
async def test_limits_are_shown_by_limit_and_not_by_key(tmp_path: Path, backend: str) -> None:
    clock = ManualClock()
    async with BACKENDS[backend](tmp_path, clock) as storage:
        scraper = Scraper(Reader(storage, clock.elapsed))
        lease = await register(storage, lease_for=timedelta(hours=1))
        await enqueue_one(storage)
        assert await figures(scraper) == {}
        await claim_one(storage, lease)
        await storage.config.ensure_limits(QUEUE, {NAME: 1, "unused": 3})
        for key in range(20):
            for _ in range(3):
                await enqueue_one(storage, limit_name=NAME, limit_key=f"host {key}")
        assert len(await claim(storage, lease, limit=100)) == 20
        await storage.config.set_rate_limit("api", RateLimit(1, timedelta(hours=1)))
        await enqueue_one(storage)
        waits = rate_limited(timedelta(hours=1), rate_limit="api")
        assert await finish(storage, await claim_one(storage, lease), waits)
        clock.advance(90.0)
        found = await figures(scraper)
        of = (("limit", NAME), ("queue", QUEUE))
        unused = (("limit", "unused"), ("queue", QUEUE))
        api = (("limit", "api"),)
        assert found == {
            ("limit_jobs", (*of, ("state", "running"))): 20,
            ("limit_jobs", (*of, ("state", "waiting"))): 40,
            ("limit_full_keys", of): 20,
            ("limit_oldest_waiting_seconds", of): 90,
            ("limit_jobs", (*unused, ("state", "running"))): 0,
            ("limit_jobs", (*unused, ("state", "waiting"))): 0,
            ("limit_full_keys", unused): 0,
            ("limit_oldest_waiting_seconds", unused): 0,
            ("rate_limit_waiting", api): 1,
            ("rate_limit_oldest_waiting_seconds", api): 90,
            ("rate_limit_taken_per_minute", api): 0,
            ("rate_limit_refused_per_minute", api): 0,
        }


async def test_limits_of_a_queue_that_has_gone_leave_no_series(storage: Storage) -> None:
    scraper = Scraper(Reader(storage))
    await storage.config.ensure_limits("other", {NAME: 1})
    assert await figures(scraper)
    await storage.config.delete_queue("other")
    scraper._reader.forget()
    assert await figures(scraper) == {}


async def test_tokens_of_the_busiest_limits_are_shown_and_of_no_key(storage: Storage) -> None:
    scraper = Scraper(Reader(storage))
    for number in range(MOST_LABELLED + 20):
        await storage.config.ensure_rate_limit(f"limit {number:03}", RateLimit(5, 60))
    minute = (await storage.cron.now()).replace(second=0, microsecond=0)
    for _ in range(2):
        lease = await register(storage, lease_for=timedelta(hours=1))
        told = RateGauge("limit 210", taken=3, refused=4)
        await storage.procs.record_gauges(lease, minute, PodGauges(rates=(told,)))
    found = {
        labels[0][1]: value
        for (name, labels), value in (await figures(scraper)).items()
        if name == "rate_limit_taken_per_minute"
    }
    assert found["limit 210"] == 6
    assert len(found) == MOST_LABELLED
    assert sum(found.values()) == 6
    of = (("limit", "limit 210"),)
    assert (await figures(scraper))["rate_limit_refused_per_minute", of] == 8
