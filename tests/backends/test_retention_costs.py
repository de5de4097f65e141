"""Statements and rows of a pass of retention on a SQL database, counted."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.jobs.cleanup import holds
from tests.backends.test_hot_path_costs import ASKED, Asked
from tests.support.backends import forget, url_of
from tests.support.factories import DAY, cleaned_up, new_job
from tests.support.postgres import database_of, touched

pytestmark = pytest.mark.anyio

OVERDUE, OTHERS = 3_000, 100
AT_ONCE = 1_000
A_DAY = Retention(cancelled=DAY)
KEPT = Retention(cancelled=400 * DAY)
PORTIONS = 8
"""Portions of one pass over the overdue jobs, where no time passes: 32 rows, then twice as many."""
OF_A_PORTION = 6
"""Statements: jobs are found, then they go with edges, progress, lines and checkpoints."""


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a pass takes more portions, and so more statements.
    monkeypatch.setattr(holds, "_elapsed", itertools.count(step=1e-9).__next__)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ASKED)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def asked(backend: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return ASKED[backend](monkeypatch)


@pytest.fixture
async def store(
    backend: str, asked: Asked, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Storage]:
    async with await open_storage(await url_of(backend, tmp_path), clock=clock) as opened:
        yield opened
    await forget(backend, tmp_path)


async def ended(store: Storage, queue: str, count: int, kept: Retention = A_DAY) -> None:
    await store.config.set_queue(queue, QueueChange(retention=kept))
    for _ in range(0, count, AT_ONCE):
        await store.jobs.enqueue([new_job(queue=queue) for _ in range(min(count, AT_ONCE))])
        which = JobFilter(queues=(queue,), statuses=(JobStatus.PENDING,))
        await store.jobs.cancel(which, limit=AT_ONCE)


async def analyze(store: Storage) -> None:
    await database_of(store).write(lambda tx: tx.connection.exec_driver_sql("ANALYZE forge_jobs"))


@pytest.mark.daily("sqlite")
@pytest.mark.parametrize("queues", [OTHERS, pytest.param(1_000, marks=pytest.mark.long)])
async def test_queues_without_anything_overdue_cost_a_pass_nothing(
    store: Storage, clock: ManualClock, asked: Asked, queues: int
) -> None:
    counted = []
    for others in (0, queues):
        for number in range(others):
            await ended(store, f"kept{number}", 2, KEPT)
        await ended(store, "old", OVERDUE)
        clock.advance(2 * DAY)
        asked.read()
        assert await cleaned_up(store, 5_000) == OVERDUE
        counted.append(asked.read()[0])
    # On SQLite one says that the commits of the pass are synced afterwards.
    assert max(counted) <= 11 + OF_A_PORTION * PORTIONS, counted


@pytest.mark.daily("sqlite")
async def test_many_queues_with_a_few_overdue_cost_one_look_each(
    store: Storage, clock: ManualClock, asked: Asked
) -> None:
    for number in range(OTHERS):
        await ended(store, f"old{number}", 10)
    clock.advance(2 * DAY)
    asked.read()
    assert await cleaned_up(store, 5_000) == OTHERS * 10
    # Where a portion ends within a queue, that one is looked into twice.
    assert asked.read()[0] <= 10 + OTHERS + OF_A_PORTION * PORTIONS


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_each_removed_row_is_read_a_few_times_only(
    store: Storage, clock: ManualClock
) -> None:
    for number in range(20):
        await ended(store, f"old{number}", OVERDUE // 20)
    await store.jobs.enqueue([new_job() for _ in range(5 * AT_ONCE)])
    await analyze(store)
    clock.advance(2 * DAY)
    async with touched(store) as found:
        assert await cleaned_up(store, 5_000) == OVERDUE
    assert sum(each.scanned for each in found) == 0
    assert sum(each.fetched for each in found) <= 3 * OVERDUE
