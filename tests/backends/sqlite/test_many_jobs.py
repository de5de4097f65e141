"""The cost of a page of jobs does not grow with their number."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from forge_jobs.model.filters import JobFilter, JobOrder
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, KIND, QUEUE, new_job

pytestmark = pytest.mark.anyio

FEW, MANY = 400, 4_000
PAGE = 50


async def fill(storage: Storage, count: int) -> None:
    for _ in range(count // 200):
        jobs = [new_job(delay=DAY * (n % 2)) for n in range(200)]
        await storage.jobs.enqueue(jobs)
        await storage.jobs.cancel(JobFilter(ids=tuple(job.id for job in jobs[::2])))


def instructions(storage: Storage) -> list[int]:
    """A number that grows by one with every hundred instructions of the machine that reads."""
    database: Any = storage.jobs._database  # type: ignore[attr-defined]
    seen = [0]

    def note() -> int:
        seen[0] += 1
        return 0

    # On the connection's own thread.
    def watch(_connection: Any, cursor: Any, *_: Any) -> None:
        cursor.connection.set_progress_handler(note, 100)

    event.listen(database._reader._connection, "before_cursor_execute", watch)
    return seen


@pytest.mark.parametrize(
    "which",
    [JobFilter(), JobFilter(queues=(QUEUE,)), JobFilter(statuses=(JobStatus.CANCELLED,))],
    ids=["all", "queue", "status"],
)
async def test_a_page_costs_the_same_among_many_jobs(tmp_path: Path, which: JobFilter) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
        seen = instructions(storage)

        async def cost() -> int:
            before = seen[0]
            page = await storage.jobs.list(which, limit=PAGE)
            assert len((await storage.jobs.list(which, cursor=page.cursor, limit=PAGE)).jobs) == 50
            return seen[0] - before

        await fill(storage, FEW)
        among_few = await cost()
        assert among_few > 0
        await fill(storage, MANY)
        assert await cost() <= 1.2 * among_few


@pytest.mark.parametrize("order", ["finished", "due"])
async def test_a_page_by_time_costs_the_same_among_many_jobs(
    tmp_path: Path, order: JobOrder
) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
        seen = instructions(storage)

        async def cost() -> int:
            before = seen[0]
            page = await storage.jobs.list(JobFilter(), order=order, limit=PAGE)
            assert page.cursor is not None
            beyond = await storage.jobs.list(
                JobFilter(), order=order, cursor=page.cursor, limit=PAGE
            )
            assert len(beyond.jobs) == 50
            return seen[0] - before

        await fill(storage, FEW)
        among_few = await cost()
        assert among_few > 0
        await fill(storage, MANY)
        assert await cost() <= 1.2 * among_few


async def test_a_count_looks_at_a_bounded_number_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", FEW // 2)
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
        seen = instructions(storage)

        async def cost() -> int:
            before = seen[0]
            assert (await storage.jobs.count(JobFilter(), at_most=FEW // 2)).is_more
            none = JobFilter(tag="none", kinds=(KIND, "other"))
            assert (await storage.jobs.count(none)).looked_back_to is not None
            return seen[0] - before

        await fill(storage, FEW)
        among_few = await cost()
        assert among_few > 0
        await fill(storage, MANY)
        assert await cost() <= 1.2 * among_few


async def test_a_call_looks_at_a_bounded_number_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", FEW // 2)
    which = JobFilter(tag="none", kinds=(KIND, "other"))
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
        seen = instructions(storage)

        async def cost() -> int:
            before = seen[0]
            assert (await storage.jobs.list(which)).looked_back_to is not None
            return seen[0] - before

        await fill(storage, FEW)
        among_few = await cost()
        assert among_few > 0
        await fill(storage, MANY)
        assert await cost() <= 1.2 * among_few
