"""Plans where the statistics are those of an empty table, or there are none, before an ANALYZE."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql

from forge_jobs.clock import to_us
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.fleet.pods import QUEUE_BEATS
from forge_jobs.storage.sql.fleet.registering import of_lease
from forge_jobs.storage.sql.jobs import deliveries
from tests.support import backends
from tests.support.factories import LEASE, new_job, register
from tests.support.postgres import raw

pytestmark = pytest.mark.anyio

STORED, AT_ONCE = 20_000, 500
QUEUES = [f"tenant-{number:03}" for number in range(300)]

FILL = f"""
INSERT INTO forge_edges (child_id, parent_id, child_queue, on_failure, link)
SELECT 'C' || lpad(n::text, 25, '0'), 'P' || lpad((n / 10)::text, 25, '0'), 'q', 'hold', 'told'
FROM generate_series(1, {STORED}) AS n;
INSERT INTO forge_handovers (queue, child_id, parent_id, parent_status, on_failure)
SELECT 'q', child_id, parent_id, 'done', 'hold' FROM forge_edges ORDER BY child_id;
"""


@pytest.mark.parametrize("name", ["_TAKE_UNLOCKED", "_TOLD_EDGES_BY_KEY", "_SETTLE"])
async def test_a_hand_over_reads_as_many_rows_as_it_is_given(tmp_path: Path, name: str) -> None:
    url = await backends.url_of("postgres", tmp_path)
    dialect: Any = postgresql.asyncpg.dialect
    statement = getattr(deliveries, name).compile(dialect=dialect())
    async with raw(url) as connection:
        for table in ("forge_edges", "forge_handovers"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await connection.execute(FILL)
        await connection.execute("DELETE FROM forge_edges; DELETE FROM forge_handovers")
        # Pages without a row: any number of rows is expected to be none.
        await connection.execute("ANALYZE forge_edges, forge_handovers")
        await connection.execute(FILL)
        rows = await connection.fetch(f"SELECT * FROM forge_handovers ORDER BY id LIMIT {AT_ONCE}")
        given = {
            "ids": [row["id"] for row in rows],
            "pairs": [row["child_id"] + row["parent_id"] for row in rows],
        }
        values = {**statement.params, **given}
        arguments = [values[each] for each in statement.positiontup]
        explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}"
        [plan] = json.loads(await connection.fetchval(explain, *arguments))
    await backends.forget("postgres", tmp_path)
    assert sum(visited(plan["Plan"])) < 10 * STORED, plan


async def test_a_beat_reads_as_many_rows_as_the_pod_has_queues(tmp_path: Path) -> None:
    url = await backends.url_of("postgres", tmp_path)
    dialect: Any = postgresql.asyncpg.dialect
    statement = QUEUE_BEATS.compile(dialect=dialect())
    async with raw(url) as connection:
        for table in ("forge_slots", "forge_queues", "forge_jobs"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        async with await open_storage(url) as storage:
            lease = await register(storage, queues=QUEUES)
            await storage.jobs.enqueue([new_job(queue=name) for name in QUEUES for _ in range(2)])
            beat = await storage.jobs.heartbeat(lease, [], lease_for=LEASE)
        assert {each.next_due_in for each in beat.queues.values()} == {timedelta(0)}
        values = {**statement.params, **of_lease(lease), "now": to_us(beat.now)}
        arguments = [values[each] for each in statement.positiontup]
        explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}"
        [plan] = json.loads(await connection.fetchval(explain, *arguments))
    await backends.forget("postgres", tmp_path)
    assert len(QUEUES) < sum(visited(plan["Plan"])) < 30 * len(QUEUES), plan


def visited(node: dict[str, Any]) -> Iterator[float]:
    """Yield how many rows each part of the plan has seen."""
    seen = sum(value for key, value in node.items() if key.startswith("Rows Removed"))
    yield (node["Actual Rows"] + seen) * node["Actual Loops"]
    for each in node.get("Plans", ()):
        yield from visited(each)
