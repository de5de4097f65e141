"""Tables and views for people in psql and the sqlite3 shell."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from forge_jobs import JobStatus
from forge_jobs.clock import ManualClock
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.sql.progress.tables import metadata
from tests.migrations.catalog import query
from tests.support.backends import forget, url_of
from tests.support.factories import claim_one, done, enqueue_one, finish, register
from tests.support.postgres import raw

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """An empty store."""
    yield await url_of(request.param, tmp_path)
    await forget(request.param, tmp_path)


async def test_the_view_shows_instants_and_durations(url: str) -> None:
    clock = ManualClock()
    async with await open_storage(url, clock=clock) as storage:
        lease = await register(storage)
        await enqueue_one(storage)
        clock.advance(timedelta(seconds=2))
        claimed = await claim_one(storage, lease)
        clock.advance(timedelta(seconds=3, microseconds=5))
        assert await finish(storage, claimed, done())
    [row] = await query(
        url, "SELECT status, due_at, finished_at, waited, ran, started_at FROM forge_jobs_view"
    )
    status, due, finished, waited, ran, started = row
    if url.startswith("sqlite"):
        assert (status, due) == ("done", "2026-01-01T00:00:00.000000Z")
        assert started == "2026-01-01T00:00:02.000000Z"  # No beat has seen the run.
        assert (finished, waited, ran) == ("2026-01-01T00:00:05.000005Z", 2.0, 3.000005)
    else:
        assert (status, due, started) == ("done", START, START + timedelta(seconds=2))
        assert finished == START + timedelta(seconds=5, microseconds=5)
        assert (waited, ran) == (timedelta(seconds=2), timedelta(seconds=3, microseconds=5))


async def test_one_spoilt_instant_leaves_the_view_of_the_others(url: str) -> None:
    async with await open_storage(url) as storage:
        spoilt, _ = [await enqueue_one(storage) for _ in range(2)]
    await query(url, f"UPDATE forge_jobs SET run_at = {2**62} WHERE id = '{spoilt}' RETURNING id")
    rows = await query(url, "SELECT due_at FROM forge_jobs_view ORDER BY due_at IS NULL")
    assert len(rows) == 2
    assert rows[0][0] is not None


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[str]:
    yield await url_of("postgres", tmp_path)
    await forget("postgres", tmp_path)


async def test_tables_and_columns_have_comments(postgres: str) -> None:
    statement = (
        "SELECT relname, attname, obj_description(pg_class.oid),"
        " col_description(pg_class.oid, attnum)"
        " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relkind = 'r' AND relname LIKE 'forge%' AND attnum > 0 AND NOT attisdropped"
    )
    found = await query(postgres, statement)
    assert {table.name for table in metadata.sorted_tables} < {row[0] for row in found}
    assert [f"{row[0]}.{row[1]}" for row in found if not (row[2] and row[3])] == []


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE forge_jobs SET status = 'completed'",
        "INSERT INTO forge_handovers (queue, child_id, parent_id, parent_status, on_failure)"
        " VALUES ('q', 'a', 'b', 'failed', 'cancel')",
    ],
)
async def test_a_status_that_no_release_knows_is_refused(postgres: str, text: str) -> None:
    async with raw(postgres) as connection:
        await connection.execute("SELECT forge_enqueue('mail')")
        with pytest.raises(asyncpg.CheckViolationError, match="known_status"):
            await connection.execute(text)


async def test_a_record_that_was_spoilt_before_stays(postgres: str) -> None:
    migrator = open_migrator(postgres)
    await migrator.up()
    await migrator.down(7)
    async with raw(postgres) as connection:
        await connection.execute("SELECT forge_enqueue('mail')")
        await connection.execute("UPDATE forge_jobs SET status = 'completed'")
        await migrator.up()
        assert await connection.fetchval("SELECT status FROM forge_jobs") == "completed"
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute("UPDATE forge_jobs SET status = 'finished'")
        checked = "SELECT convalidated FROM pg_constraint WHERE conname = $1"
        assert await connection.fetchval(checked, "forge_jobs_known_status") is False


async def test_the_check_knows_every_status(postgres: str) -> None:
    async with raw(postgres) as connection:
        await connection.execute("SELECT forge_enqueue('mail')")
        for status in JobStatus:
            await connection.execute("UPDATE forge_jobs SET status = $1", status.value)


async def test_forge_enqueue_takes_jsonb_and_counts_a_delay_from_the_call(postgres: str) -> None:
    async with raw(postgres) as connection:
        job = await connection.fetchval(
            "SELECT forge_enqueue('mail', jsonb_build_object('n', 7), queue => 'q')"
        )
        stored = await connection.fetchrow("SELECT * FROM forge_jobs WHERE id = $1", job)
        assert (stored["payload"], stored["queue"]) == ('{"n": 7}', "q")
        # A literal is a text, as before.
        assert await connection.fetchval("SELECT forge_enqueue('mail', '{}')")
        assert await connection.fetchval("SELECT forge_enqueue('mail')")
        ahead = await connection.fetchval(
            "WITH waited AS MATERIALIZED (SELECT pg_sleep(0.05)),"
            " made AS MATERIALIZED (SELECT forge_enqueue('mail', delay => interval '1 hour') AS id"
            " FROM waited)"
            " SELECT extract(epoch FROM statement_timestamp()) FROM made"
        )
        due = await connection.fetchval("SELECT max(run_at) FROM forge_jobs")
        assert due >= (float(ahead) + 3600 + 0.05) * 1_000_000 - 1
