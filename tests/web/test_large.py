"""Calls of the store, bytes and plans of each page among many queues."""

import random
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from bench.large_store import fill, queue_names
from bench.pages import pages
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.series import Depth, SeriesStep
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from forge_jobs.web.pages import board
from forge_jobs.web.pages.board import Row
from forge_jobs.web.pages.charts import figures
from forge_jobs.web.pages.charts.spans import COMPARED, Span
from tests.support.backends import forget, url_of
from tests.support.faulty import Faults, faulty
from tests.web.conftest import ADA, client_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]

HTML = {"Accept": "text/html"}
MOST_BYTES = 100_000
"""Of the 120,000 that are allowed: headers and longer names come on top."""

MOST_CALLS = {"/": 14, "/queues": 11, "/queues/": 20, "/jobs/": 21, "/pods/": 12, "/store": 30}
"""By the longest beginning of the path. Nothing is known to the process before."""

OTHERS = 11


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def large(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """A store of 20 queues, 50 kinds and 10 pods with an hour of history, and some jobs."""
    url = await url_of(request.param, tmp_path)
    await fill(url, finished=800, waiting=800)
    async with await open_storage(url) as storage:
        yield storage
    await forget(request.param, tmp_path)


async def paths(storage: Storage) -> list[str]:
    """Return every page and list."""
    which = JobFilter(queues=("q03",), statuses=(JobStatus.DONE,))
    job = (await storage.jobs.list(which, limit=1)).jobs[0].id
    pod = (await storage.procs.pods())[0].pod.host_id
    return [*pages(job, pod, await storage.cron.now()), "/?over=30d", "/?over=30d&compare=week"]


def most(path: str) -> int:
    """Return how many calls the page may take."""
    begins = [each for each in MOST_CALLS if path == each or path.startswith(f"{each}?")]
    begins += [each for each in MOST_CALLS if each.endswith("/") and each in path and each != "/"]
    return MOST_CALLS[max(begins, key=len)] if begins else OTHERS


async def test_no_page_asks_often_or_is_long(large: Storage) -> None:
    assert len(queue_names()) == 20
    for path in await paths(large):
        faults = Faults()
        app = dashboard(faulty(large, faults), authorize=lambda _: ADA)
        async with client_of(app) as client:
            faults.calls.clear()
            answer = await client.get(path, headers=HTML)
        assert answer.status_code == 200, path
        assert faults.calls.total() <= most(path), (path, faults.calls)
        if "/api/" not in path and path != "/metrics":
            assert len(answer.content) <= MOST_BYTES, path


def busy(since: datetime, step: timedelta, count: int) -> list[SeriesStep]:
    """Steps of a store in which every number is another one, and a long one."""
    draw = random.Random(7)
    found = []
    for index in range(count):
        counts = {
            name: draw.randint(100_000, 9_999_999)
            for name in ("enqueued", "claimed", "succeeded", "failed", "timed_out", "cancelled")
        }
        spread = Histogram({draw.randint(120, 260): 1 for _ in range(100)})
        depth = Depth(
            due=draw.randint(10_000, 999_999),
            oldest_due_for=draw.randint(1_000, 9_999) * MINUTE / 7,
        )
        at = since + index * step
        found.append(
            SeriesStep(
                at=at, length=step, counts=counts, delay=spread, processing=spread, depth=depth
            )
        )
    return found


@pytest.mark.parametrize("large", ["sqlite"], indirect=True)
async def test_a_page_with_the_longest_lines_that_can_be_is_not_long(
    large: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(storage: Storage, span: Span, queue: str = "") -> figures.Reading:
        del storage, queue
        count = len(span.times)
        before = COMPARED[span.compare]
        return (
            busy(span.since, span.step, count),
            busy(span.since - before, span.step, count),
        )

    really = board.with_flow

    def with_flow(row: Row, minutes: list[SeriesStep]) -> Row:
        del minutes
        return really(row, busy(datetime(2026, 11, 1, tzinfo=UTC), MINUTE, 60))

    monkeypatch.setattr(figures, "read", read)
    monkeypatch.setattr(board, "with_flow", with_flow)
    async with client_of(dashboard(large, authorize=lambda _: ADA)) as client:
        for path in ("/?over=24h&compare=week", "/?over=30d&compare=week", "/?over=7d&compare=day"):
            answer = await client.get(path, headers=HTML)
            assert answer.status_code == 200
            assert answer.text.count('class="line before') == 13
            assert len(answer.content) <= MOST_BYTES, path


@pytest.mark.parametrize("large", ["sqlite"], indirect=True)
async def test_no_plan_of_a_page_reads_a_whole_table(large: Storage) -> None:
    app = dashboard(large, authorize=lambda _: ADA)
    async with client_of(app) as client:
        found = [
            (path, plan, statement)
            for path in await paths(large)
            for statement, plan in await _plans(large, client, path)
            if _SCANS.search(plan) and not _is_bounded(statement, plan)
        ]
    assert not found


def _is_bounded(statement: str, plan: str) -> bool:
    """Return whether a walk over all ids in their order ends at a bound."""
    return "LIMIT" in statement and bool(_BY_ID.search(plan)) and "TEMP" not in plan


_BY_ID = re.compile(r"SCAN forge_jobs USING (COVERING )?INDEX sqlite_autoindex_forge_jobs_1")
_GROWING = (
    "jobs|counters|latencies|hours|series_\\w+|events|error_\\w+|action_jobs|gauges|log_lines"
)
_SCANS = re.compile(
    rf"SCAN (?:forge_(?:{_GROWING})|j)\b(?! USING (?:COVERING )?INDEX forge_jobs_owned)"
)
"""Tables that grow with the jobs or with time. The index of claims holds running jobs alone."""


async def _plans(storage: Storage, client: httpx.AsyncClient, path: str) -> list[tuple[str, str]]:
    """Return each statement of a page with its plan."""
    found: list[tuple[str, str]] = []
    database: Any = storage.jobs._database  # type: ignore[attr-defined]

    def note(_c: Any, cursor: Any, statement: str, given: Any, _x: Any, many: bool) -> None:
        if statement.startswith("SELECT") or statement.startswith("WITH"):
            one = given[0] if many else given
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", one).fetchall()
            found.append((statement, " | ".join(row[3] for row in rows)))

    event.listen(database._reader._connection, "before_cursor_execute", note)
    try:
        answer = await client.get(path, headers=HTML)
        assert answer.status_code == 200, path
    finally:
        event.remove(database._reader._connection, "before_cursor_execute", note)
    return found


def test_a_scan_is_seen() -> None:
    assert _SCANS.search("SEARCH queues | SCAN forge_jobs")
    assert _SCANS.search("SCAN forge_series_minutes USING INDEX x")
    assert not _SCANS.search("SCAN forge_jobs USING INDEX forge_jobs_owned")
    assert not _SCANS.search("SCAN forge_queues | SEARCH forge_jobs USING INDEX forge_jobs_ready")
