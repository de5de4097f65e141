"""Rows that the hot statements touch in a large table, with the plans of prepared statements."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from bench.pages import pages
from forge_jobs.clock import EPOCH
from forge_jobs.model.filters import Count, JobFilter, JobOrder
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.support import backends
from tests.support.asked import asked
from tests.support.factories import KIND, LEASE, QUEUE, claim, done, held, new_job, register
from tests.support.postgres import database_of, raw, touched
from tests.support.waiting import wait_until
from tests.web.conftest import ADA, client_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]

FINISHED = 1_000_000
WAITING = 100_000
FUTURE = 9 * 10**15

# The wide indexes are made afterwards, which halves the time.
FILL = f"""
INSERT INTO forge_queues (name, max_workers, cooldown, retention, retry)
VALUES ('{QUEUE}', 1, '{{}}', '{{}}', 'null') ON CONFLICT DO NOTHING;
INSERT INTO forge_jobs
    (id, queue, kind, payload, status, cause, priority, run_at, enqueued_at, token, finished_at)
SELECT '01' || lpad(n::text, 24, '0'), '{QUEUE}', '{KIND}', '{{}}', 'done', 'succeeded', 0, n, n, n,
    {FUTURE} FROM generate_series(1, {FINISHED}) AS n;
INSERT INTO forge_jobs
    (id, queue, kind, payload, status, cause, priority, run_at, enqueued_at, token)
SELECT '02' || lpad(n::text, 24, '0'), '{QUEUE}', '{KIND}', '{{}}', 'pending', 'enqueued', n % 5,
    n + CASE WHEN n % 2 = 0 THEN {FUTURE} ELSE 0 END, n, n FROM generate_series(1, {WAITING}) AS n;
"""
COUNT_NOW = text("SELECT pg_stat_force_next_flush()")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """A database with a million finished jobs and a hundred thousand that wait."""
    folder: Path = tmp_path_factory.mktemp("full")
    url = await backends.url_of("postgres", folder)
    name = url.rsplit("/", 1)[1]
    async with raw(url) as connection:
        made = await connection.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'forge_jobs'"
            " AND indexname <> 'forge_jobs_pkey'"
        )
        for row in made:
            await connection.execute(f"DROP INDEX {row['indexname']}")
        await connection.execute(FILL)
        for row in made:
            await connection.execute(row["indexdef"])
        await connection.execute("ANALYZE forge_jobs")
        # What a prepared statement comes to after a few uses, at once.
        await connection.execute(f"ALTER DATABASE {name} SET plan_cache_mode = force_generic_plan")
    yield url
    await backends.forget("postgres", folder)


async def claims(storage: Storage, lease: PodLease) -> None:
    assert len(await claim(storage, lease, limit=10)) == 10


async def exchanges(storage: Storage, lease: PodLease) -> None:
    ends = [Finalization(each.claim, done()) for each in await claim(storage, lease, limit=10)]
    demand = Demand(worker_ids=("w",), limit=10, kinds=frozenset({KIND}))
    assert len((await storage.jobs.exchange(QUEUE, ends, demand, lease)).claimed) == 10


async def beats(storage: Storage, lease: PodLease) -> None:
    owned = [held(each, "w") for each in await claim(storage, lease, limit=10)]
    await storage.jobs.heartbeat(lease, owned, LEASE)


async def looks_for_silent_claims(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.stale_claims(LEASE, 500)


async def looks_for_leases_ahead(storage: Storage, lease: PodLease) -> None:
    await storage.procs.bring_back_leases()


async def looks_for_jobs_ahead(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.bring_back_jobs(500)


async def enqueues(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job(unique=Unique(f"k{n}")) for n in range(100)])


async def enqueues_plainly(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(100)])


async def expires(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.expire(100)


async def cleans_up(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.cleanup(100)


async def leads(storage: Storage, lease: PodLease) -> None:
    await storage.cron.lead(HostId(lease.host_id), LEASE)


async def reads_allocations(storage: Storage, lease: PodLease) -> None:
    await storage.procs.allocations()


async def asks_for_due_kinds(storage: Storage, lease: PodLease) -> None:
    assert await storage.procs.due_kinds([QUEUE]) == {QUEUE: {KIND: 5_000}}


async def lists(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.list(JobFilter(queues=(QUEUE,), statuses=(JobStatus.DONE,)))


async def lists_by_time(storage: Storage, lease: PodLease) -> None:
    orders: tuple[JobOrder, ...] = ("finished", "due")
    for order in orders:
        page = await storage.jobs.list(JobFilter(), order=order)
        assert len(page.jobs) == 50
        page = await storage.jobs.list(JobFilter(), order=order, cursor=page.cursor)
        assert len(page.jobs) == 50


async def counts_queues(storage: Storage, lease: PodLease) -> None:
    counts = (await storage.jobs.counts(ended_at_most=1_000))[QUEUE]
    assert (counts.by_status["done"], counts.more) == (1_000, ("done",))


async def counts_to_a_bound(storage: Storage, lease: PodLease) -> None:
    for which in (JobFilter(), JobFilter(queues=(QUEUE,)), JobFilter(statuses=(JobStatus.DONE,))):
        assert await storage.jobs.count(which, at_most=1_000) == Count(1_000, is_more=True)


async def counts_what_no_index_has(storage: Storage, lease: PodLease) -> None:
    found = await storage.jobs.count(JobFilter(tag="none"))
    assert found.looked_back_to is not None


async def lists_by_what_no_index_has(storage: Storage, lease: PodLease) -> None:
    for which in (
        JobFilter(tag="none"),
        JobFilter(kinds=("none",)),
        JobFilter(schedule="none"),
        JobFilter(enqueued_before=EPOCH),
    ):
        page = await storage.jobs.list(which)
        assert (page.jobs, page.cursor) == ((), page.looked_back_to)
        assert page.cursor is not None


async def gets(storage: Storage, lease: PodLease) -> None:
    assert await storage.jobs.get([JobId("01" + "1".zfill(24))])


async def shows_every_page(storage: Storage, lease: PodLease) -> None:
    job, now = JobId("01" + "1".zfill(24)), await storage.cron.now()
    app = dashboard(storage, authorize=lambda _: ADA)
    async with client_of(app) as client:
        for path in pages(job, lease.host_id, now, queue=QUEUE, kind=KIND):
            assert (await client.get(path)).status_code == 200, path


Verb = Callable[[Storage, PodLease], Awaitable[None]]


@pytest.mark.parametrize(
    ("verb", "most"),
    [
        (claims, 60),
        (exchanges, 120),
        (beats, 100),
        (looks_for_silent_claims, 100),
        (looks_for_leases_ahead, 100),
        (looks_for_jobs_ahead, 60_000),
        (enqueues, 10),
        (enqueues_plainly, 10),
        (expires, 10),
        (cleans_up, 10),
        (leads, 5),
        (reads_allocations, 5),
        # A thousand of each of the five priorities, of fifty thousand that are due.
        (asks_for_due_kinds, 5_100),
        # One page more than is shown, found and then read.
        (lists, 160),
        # Of 50,000 jobs the id is read, and then the row.
        (lists_by_what_no_index_has, 100_001),
        # A page of each of five priorities.
        (lists_by_time, 500),
        (counts_to_a_bound, 1_001),
        # A hundred thousand wait, and half of them are due: these are counted as such once more.
        # Of a million that ended a thousand are looked at.
        (counts_queues, 155_000),
        (counts_what_no_index_has, 100_001),
        # The counts of the queues are what costs most.
        (shows_every_page, 155_000),
        (gets, 1),
    ],
)
async def test_what_is_touched_does_not_grow_with_the_table(
    full: str, verb: Verb, most: int
) -> None:
    async with await open_storage(full) as storage:
        lease = await register(storage)
        async with touched(storage) as found:
            await verb(storage, lease)
    assert found
    assert not [each for each in found if each.scanned], "a scan of the whole table"
    assert max(each.fetched for each in found) <= most


async def test_a_status_without_jobs_is_looked_for_behind_its_queue_alone(full: str) -> None:
    # A scan ends at the first column of a row comparison. With the queue in there it would go
    # through the million that are done.
    which = JobFilter(queues=(QUEUE,), statuses=(JobStatus.FAILED,))
    async with await open_storage(full) as storage:
        with asked() as seen:
            assert await storage.jobs.count(which) == Count(0)
            assert not (await storage.jobs.list(which)).jobs
    walks = [text for text in seen if "(forge_jobs.status, forge_jobs.id) <" in text]
    assert len(walks) >= 2
    assert not [text for text in seen if "(forge_jobs.queue, forge_jobs.status" in text]


async def test_jobs_of_kinds_that_others_know_are_passed_over_by_the_index(full: str) -> None:
    async with await open_storage(full) as storage:
        await register(storage)
        other = await register(storage, kinds=("other",))
        async with touched(storage) as found:
            assert not await claim(storage, other, kinds=("other",))
    assert not found[0].scanned


async def test_jobs_that_wait_for_a_limit_are_not_among_those_to_be_freed(full: str) -> None:
    async with await open_storage(full) as storage, raw(full) as connection:
        await register(storage)
        await connection.execute(
            "UPDATE forge_jobs SET hold = 'limit' WHERE id IN"
            " (SELECT id FROM forge_jobs WHERE status = 'pending' LIMIT 5000)"
        )
        async with touched(storage) as found:
            await storage.procs.free_held_jobs(1_000)
            await register(storage)
            with asked() as seen:
                assert (await storage.jobs.counts([QUEUE]))[QUEUE].held == 0
        await connection.execute("UPDATE forge_jobs SET hold = NULL WHERE hold = 'limit'")
        plans = [
            await connection.fetch(f"EXPLAIN {text}", [QUEUE]) for text in seen if "hold IN" in text
        ]
    assert max(each.walked + each.scanned for each in found[:2]) <= 100
    assert plans
    assert "forge_jobs_set_aside" in str(plans)


async def test_statements_planned_for_an_empty_table_are_good_for_a_full_one(
    tmp_path: Path,
) -> None:
    url = await backends.url_of("postgres", tmp_path)
    async with await open_storage(url) as storage:
        lease = await register(storage)
        await exchanges_of(storage, lease, 0)
        async with raw(url) as connection:
            await connection.execute(
                "INSERT INTO forge_jobs"
                " (id, queue, kind, payload, status, cause, priority, run_at, enqueued_at, token)"
                f" SELECT '01' || lpad(n::text, 24, '0'), '{QUEUE}', '{KIND}', '{{}}', 'pending',"
                " 'enqueued', 0, n, n, n FROM generate_series(1, 1000) AS n"
            )
        async with touched(storage) as found:
            await exchanges_of(storage, lease, 10)
    assert len(found) == 2
    assert not [each for each in found if each.scanned], "a scan of the whole table"
    assert max(each.walked for each in found) <= 100
    await backends.forget("postgres", tmp_path)


async def exchanges_of(storage: Storage, lease: PodLease, count: int) -> None:
    demand = Demand(worker_ids=("w",), limit=10, kinds=frozenset({KIND}))
    claimed = (await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed
    assert len(claimed) == count
    ends = [Finalization(each.claim, done()) for each in claimed]
    assert all((await storage.jobs.exchange(QUEUE, ends, demand, lease)).settled)


async def test_beats_write_to_no_index(tmp_path: Path) -> None:
    url = await backends.url_of("postgres", tmp_path)
    async with await open_storage(url) as storage:
        lease = await register(storage)
        await storage.jobs.enqueue([new_job() for _ in range(50)])
        claimed = await claim(storage, lease, limit=50)
        async with raw(url) as connection:
            for _ in range(10):
                owned = [held(each, "w") for each in claimed]
                await storage.jobs.heartbeat(lease, owned, LEASE)

            async def are_counted() -> bool:
                return (await updates(connection))[0] >= 550

            await database_of(storage).write(lambda tx: tx.execute(COUNT_NOW).first())
            await wait_until(are_counted, description="the beats are counted")
            _, hot = await updates(connection)
    assert hot >= 450, "of 500 beats; the claims before have filled the pages"
    await backends.forget("postgres", tmp_path)


async def updates(connection: Any) -> tuple[int, int]:
    """Updates of jobs, and how many of them wrote to no index."""
    row = await connection.fetchrow(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'forge_jobs'"
    )
    return row[0], row[1]
