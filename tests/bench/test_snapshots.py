"""The figure of claims under an old snapshot exists, and the snapshot was held."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench.ours import Ours
from bench.runs import Runner
from bench.snapshots import SNAPSHOTS, old_snapshot
from bench.stores import PostgresStore, RedisStore, SqliteStore
from bench.suite import Bench
from forge_jobs import open_storage

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.long]


async def test_claims_are_timed_under_a_snapshot_that_the_server_knows_of(tmp_path: Path) -> None:
    async with PostgresStore(tmp_path) as store:
        bench = Bench(store, Runner(store, Ours), 1, 0.001)
        await old_snapshot(bench)

    [figure] = bench.figures
    assert figure.median > 0
    assert figure.costs["age of it that doctor is told, s"] > 0


async def test_a_snapshot_of_a_file_keeps_its_log_from_being_cut(tmp_path: Path) -> None:
    url = await SqliteStore(tmp_path).fresh()
    path = url.removeprefix("sqlite:///")
    async with await open_storage(url):
        busy = []
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            async with SNAPSHOTS["sqlite"](url):
                other.execute("CREATE TABLE later (n)")
                busy.append(other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            busy.append(other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])

    assert busy == [1, 0]


async def test_a_store_without_snapshots_has_no_such_figure(tmp_path: Path) -> None:
    store = RedisStore(tmp_path)
    bench = Bench(store, Runner(store, Ours), 1, 0.001)
    await old_snapshot(bench)

    assert bench.figures == []
