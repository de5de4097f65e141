"""The hot statements use their indexes, so that finished and scheduled jobs cost them nothing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import After, Unique
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import HotStatement
from forge_jobs.storage.sql.sqlite.statements import Single, SqliteTx
from tests.support.asked import handed_to_the_driver
from tests.support.factories import (
    KIND,
    QUEUE,
    claim_one,
    done,
    enqueue_one,
    finish,
    held,
    new_job,
    only,
    register,
)

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=15)
HELD_JOBS = tuple(f"SCAN forge_jobs USING INDEX forge_jobs_{hold}" for hold in ("parked", "struck"))
"""Only where the clock has been set back: 15 ms for 100,000 jobs on hold."""


@contextmanager
def plans(storage: Storage) -> Iterator[list[tuple[str, str]]]:
    """Statement and plan of everything that runs inside."""
    found: list[tuple[str, str]] = []
    database = storage.jobs._database  # type: ignore[attr-defined]
    connections = [database._writer._connection, database._reader._connection]

    def note(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if "forge_" in statement and "INSERT" not in statement:
            one = parameters[0] if many else parameters
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", one).fetchall()
            found.append((statement, " | ".join(row[3] for row in rows)))

    def note_direct(statements: SqliteTx, statement: HotStatement, rows: Any) -> None:
        if not statement.core.is_insert:
            # The same text and values as the driver gets.
            single = Single(statement)
            explain = f"EXPLAIN QUERY PLAN {single.text}"
            plan = statements.raw.execute(explain, single.values(rows[0])).fetchall()
            found.append((explain, " | ".join(row[3] for row in plan)))

    for connection in connections:
        event.listen(connection, "before_cursor_execute", note)
    with handed_to_the_driver(note_direct):
        yield found
    for connection in connections:
        event.remove(connection, "before_cursor_execute", note)


def of_jobs(found: list[tuple[str, str]]) -> list[str]:
    """The plans of statements on jobs."""
    return [plan for statement, plan in found if "forge_jobs" in statement]


def scans(found: list[tuple[str, str]], table: str = "forge_jobs") -> list[str]:
    """The plans that read a whole table, by whatever name a statement calls the table."""
    scanned = []
    for statement, plan in found:
        names = {table, *re.findall(rf"\b{table}(?: AS)? (\w+)", statement, re.IGNORECASE)}
        if re.search(rf"SCAN ({'|'.join(names)})\b", plan):
            scanned.append(plan)
    return scanned


def test_a_scan_under_another_name_is_seen() -> None:
    assert scans([("SELECT j.id FROM forge_jobs AS j", "SCAN j")])
    assert scans([("SELECT id FROM forge_jobs WHERE queue = ?", "SCAN forge_jobs")])
    assert not scans([("SELECT j.id FROM forge_jobs j", "SEARCH j USING INDEX x | SCAN k")])


async def test_claims_and_ends_of_claims_never_scan_the_jobs(storage: Storage) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    await enqueue_one(storage, delay=timedelta(hours=1), priority=3)
    demand = Demand(worker_ids=("w",), limit=5, kinds=frozenset({KIND}))
    with plans(storage) as found:
        claimed = (await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed
        await storage.jobs.heartbeat(lease, [held(claimed[0], "w")], LEASE)
        await finish(storage, claimed[0], done())
    jobs = of_jobs(found)
    assert len(jobs) >= 6
    assert not scans(found)
    assert not [plan for plan in jobs if "TEMP B-TREE FOR ORDER BY" in plan]
    # Each end finds the job by the id, not among all the claims of the pod.
    ends = [plan for statement, plan in found if "queue.retention" in statement]
    assert ends
    assert all(plan.endswith("id=?)") and "forge_jobs_owned" not in plan for plan in ends)
    heads = [plan for statement, plan in found if "forge_jobs.payload" in statement]
    assert heads == [
        "SEARCH forge_jobs USING INDEX forge_jobs_ready (queue=? AND priority=? AND run_at<?)"
    ]


@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("unique", "forge_jobs_unique (queue=? AND unique_key=?)"),
        # All claims of now are looked at, and nothing else.
        ("stale", "SCAN forge_jobs USING INDEX forge_jobs_owned"),
        ("leases ahead", "SCAN forge_jobs USING INDEX forge_jobs_owned"),
        ("jobs ahead", "forge_jobs_ready (queue=? AND priority=? AND run_at>?)"),
        ("expire", "forge_jobs_expiring (expires_at"),
        ("cleanup", "forge_jobs_finished (queue=? AND status=?"),
        ("beat", "forge_jobs_owned (host_id=?)"),
        # Not among jobs that wait for a limit, of which there may be 100,000.
        ("held", "forge_jobs_set_aside (queue=?)"),
        ("to be freed", "SCAN forge_jobs USING INDEX forge_jobs_set_aside"),
    ],
)
async def test_each_look_at_the_jobs_has_its_index(storage: Storage, verb: str, index: str) -> None:
    lease = await register(storage)
    await enqueue_one(storage, unique=Unique("k"))
    await finish(storage, await claim_one(storage, lease), done())
    with plans(storage) as found:
        match verb:
            case "unique":
                await storage.jobs.enqueue([new_job(unique=Unique("k"))])
            case "stale":
                await storage.jobs.stale_claims(LEASE, 10)
            case "leases ahead":
                await storage.procs.bring_back_leases()
            case "jobs ahead":
                await enqueue_one(storage)
                await storage.jobs.bring_back_jobs(10)
            case "expire":
                await storage.jobs.expire(10)
            case "cleanup":
                await storage.jobs.cleanup(10)
            case "held":
                await storage.jobs.counts([QUEUE])
            case "to be freed":
                await register(storage)
            case _:
                await storage.jobs.heartbeat(lease, [], LEASE)
    assert [plan for plan in of_jobs(found) if index in plan], found
    good = (index, *HELD_JOBS) if verb == "jobs ahead" else (index,)
    assert not [plan for plan in scans(found) if not any(each in plan for each in good)]


async def test_counts_and_sums_look_at_indexes_alone(storage: Storage) -> None:
    lease = await register(storage)
    now = await storage.cron.now()
    for _ in range(3):
        await enqueue_one(storage, expires_at=now + LEASE)
        await finish(storage, await claim_one(storage, lease), done())
    await enqueue_one(storage)
    with plans(storage) as found:
        await storage.jobs.counts(ended_at_most=2)
        await storage.jobs.summaries([QUEUE], now - LEASE, now)
    assert not [each for each in found if re.search("SCAN forge_(?!queues)", each[1])]
    due = [plan for statement, plan in found if "levels" in statement]
    at_once = "INDEX forge_jobs_ready (queue=? AND priority=? AND run_at<?)"
    assert [plan.count(at_once) for plan in due] == [2]
    assert "forge_jobs_expiring" in due[0]
    ended = [plan for statement, plan in found if "LIMIT" in statement and "status" in statement]
    assert any(
        "COVERING INDEX forge_jobs_by_queue (queue=? AND status=?)" in each for each in ended
    )


async def test_many_keys_are_looked_up_by_the_index_too(storage: Storage) -> None:
    await register(storage)
    keyed = [
        new_job(unique=Unique(key), queue=queue) for key in ("k", "l", "m") for queue in ("a", "b")
    ]
    await storage.jobs.enqueue(keyed)
    await storage.jobs.cancel(JobFilter())
    with plans(storage) as found:
        await storage.jobs.enqueue([new_job(unique=Unique(key)) for key in ("k", "l", "m")])
        await storage.jobs.requeue(JobFilter(ids=tuple(job.id for job in keyed)))
    assert not scans(found)
    assert [plan for plan in of_jobs(found) if "(queue=? AND unique_key=?)" in plan]


async def test_rolling_up_and_cleaning_never_scan_what_is_rolled_up_already(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=off"
    async with await open_storage(url, clock=clock) as storage:
        for queue in ("a", "b"):
            await enqueue_one(storage, queue=queue)
            sample = LatencySample(
                queue=queue, minute=clock.now(), processing=Histogram({}), total=Histogram({})
            )
            await storage.jobs.add_latencies(HostId("pod"), [sample])
        clock.advance(timedelta(minutes=2))
        with plans(storage) as found:
            assert await storage.jobs.roll_up(100) == 4
            await storage.jobs.cleanup(10)
    assert not [each for each in found if re.search("SCAN forge_(?!queues)", each[1])]


async def test_relatives_and_restores_are_found_by_the_index_of_edges(storage: Storage) -> None:
    parent = await enqueue_one(storage)
    await enqueue_one(storage, after=(After(parent),))
    with plans(storage) as found:
        await storage.jobs.kin([parent])
        await storage.jobs.cancel(only(parent))
        assert (await storage.jobs.restore(only(parent))).changed
    by_parent = [plan for _, plan in found if "forge_edges_of_parent (parent_id=?" in plan]
    assert len(by_parent) >= 3
    assert not scans(found, "forge_edges")
