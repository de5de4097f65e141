"""The cost of a page of jobs does not grow with their number."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from forge_jobs.clock import EPOCH
from forge_jobs.model.filters import JobFilter, JobOrder
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueSettings
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
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


FINISHED = """
INSERT INTO forge_jobs
    (id, queue, kind, payload, status, cause, priority, run_at, enqueued_at, token, finished_at)
WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
SELECT printf('01%024d', n), :queue, 'kind.' || (n % 50), '{}', 'done', 'succeeded', 0, n, n, n, n
    FROM numbers
"""


async def finished(storage: Storage, first: int, last: int) -> None:
    """Jobs of fifty kinds, stored without their indexes, which are made afterwards."""

    def insert(tx: Tx) -> None:
        execute = tx.connection.exec_driver_sql
        made = execute(
            "SELECT name, sql FROM sqlite_schema"
            " WHERE type = 'index' AND tbl_name = 'forge_jobs' AND sql IS NOT NULL"
        ).all()
        for name, _ in made:
            execute(f"DROP INDEX {name}")
        execute(FINISHED, {"first": first, "last": last, "queue": QUEUE})
        for _, definition in made:
            execute(definition)

    database: Any = storage.jobs._database  # type: ignore[attr-defined]
    await database.write(insert)


@pytest.mark.long
async def test_lists_among_a_million_cost_what_they_cost_among_a_tenth(tmp_path: Path) -> None:
    everything: list[tuple[JobFilter, bool]] = [
        (JobFilter(kinds=("kind.7",)), True),
        (JobFilter(kinds=("none",)), False),
        (JobFilter(tag="none"), False),
        (JobFilter(schedule="none"), False),
        (JobFilter(enqueued_before=EPOCH), False),
        (JobFilter(queues=(QUEUE,), tag="none"), False),
    ]
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=off&timeout=600"
    async with await open_storage(url) as storage:
        seen = instructions(storage)
        await storage.config.ensure_queue(QUEUE, QueueSettings())

        async def costs() -> list[int]:
            found = []
            for which, is_full in everything:
                before = seen[0]
                page = await storage.jobs.list(which, limit=PAGE)
                found.append(seen[0] - before)
                assert len(page.jobs) == (PAGE if is_full else 0)
                # A page that ends early says how far it looked, and goes on there.
                assert (page.looked_back_to is None) is is_full
                assert page.cursor is not None
            return found

        await finished(storage, 1, 100_000)
        among_a_tenth = await costs()
        await finished(storage, 100_001, 1_000_000)
        among_a_million = await costs()
    assert all(
        many <= 1.2 * few + 5 for few, many in zip(among_a_tenth, among_a_million, strict=True)
    ), (among_a_tenth, among_a_million)


async def test_a_list_of_many_queues_looks_where_the_newest_jobs_are(tmp_path: Path) -> None:
    which = JobFilter(kinds=("rare",), statuses=(JobStatus.CANCELLED,))
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
        seen = instructions(storage)

        async def cost() -> int:
            before = seen[0]
            assert len((await storage.jobs.list(which, limit=PAGE)).jobs) == PAGE
            return seen[0] - before

        async def end(queue: str, count: int, kind: str) -> None:
            for _ in range(count // 200):
                jobs = [new_job(queue=queue, kind=kind) for _ in range(200)]
                await storage.jobs.enqueue(jobs)
                await storage.jobs.cancel(JobFilter(ids=tuple(job.id for job in jobs)))

        for name in ("a", "b", "c"):
            await end(name, FEW, KIND)
        await end("d", 200, "rare")
        among_few = await cost()
        assert among_few > 0
        for name in ("a", "b", "c"):
            await end(name, MANY, KIND)
        await end("d", 200, "rare")
        assert await cost() <= 1.2 * among_few
