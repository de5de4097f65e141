"""Firing many schedules costs the databases as many statements as firing a few."""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import Engine, event

from forge_jobs import EnqueueRequest, RuntimeSettings
from forge_jobs.clients.schedules import ensure_schedules, schedule
from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_job_id
from forge_jobs.runtime.passes.cron import FIRE_BATCH, fire_due_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import HotStatement
from tests.support.asked import handed_to_the_driver
from tests.support.backends import BACKENDS, forget

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
MOST = 20
"""Statements of a pass that fires: two reads of due schedules, one call, counters and wake-ups."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
async def timed_storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    """An empty store on ``clock``."""
    async with BACKENDS[request.param](tmp_path, clock) as opened:
        yield opened
    await forget(request.param, tmp_path)


@contextmanager
def handed_over() -> Iterator[list[str]]:
    """Yield the statements that go to the driver, one for all rows of a call."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, text: str, *_: object) -> None:
        seen.append(text)

    def note_direct(_statements: object, statement: HotStatement, _rows: object) -> None:
        seen.append(str(statement.core))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with handed_to_the_driver(note_direct):
            yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.daily("skip")
@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_a_hundred_schedules_cost_as_many_statements_as_one(
    timed_storage: Storage, clock: ManualClock, overlap: Literal["allow", "skip"]
) -> None:
    # Statements that a connection makes once for a queue are over.
    await statements_of(timed_storage, clock, 1, overlap)
    one = await statements_of(timed_storage, clock, 1, overlap)
    hundred = await statements_of(timed_storage, clock, FIRE_BATCH, overlap)

    assert len(hundred) == len(one) <= MOST


async def statements_of(
    storage: Storage, clock: ManualClock, count: int, overlap: Literal["allow", "skip"]
) -> list[str]:
    """Return the statements of a pass that fires so many due schedules."""
    request = EnqueueRequest("report", queue="reports")
    specs = [schedule(new_job_id(), request, "* * * * *", overlap=overlap) for _ in range(count)]
    await ensure_schedules(storage.cron, specs)
    clock.advance(MINUTE)
    with handed_over() as statements:
        report = await fire_due_once(storage.cron, RuntimeSettings(), random.Random(1))
    assert report.fired == count
    for spec in specs:
        found = await storage.cron.get_schedule(spec.name)
        assert found is not None
        assert (found.fired, found.skipped) == (1, 0)
        await storage.cron.delete_schedule(spec.name)
    return statements
