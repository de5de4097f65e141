"""Counters that figures rest on: statements of SQLite, CPU of processes."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bench.tracing import SqliteStatements
from bench.usage import own_rss_bytes, own_written_bytes, tree_cpu_seconds

# The kernel counts in ticks of 10 ms.
BURNT = 0.25
BURN = "import time\nwhile time.process_time() < 0.3: pass"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> SqliteStatements:
    monkeypatch.setattr(sqlite3, "connect", sqlite3.connect)  # taken back at the end
    return SqliteStatements()


def test_statements_are_counted_without_looks_at_the_file(
    statements: SqliteStatements,
) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE a (n)")
    before = statements.count

    connection.execute("BEGIN")
    connection.executemany("INSERT INTO a VALUES (?)", [(1,), (2,)])
    connection.execute("COMMIT")
    connection.execute("PRAGMA data_version")
    connection.close()

    assert statements.count - before == 2
    assert statements.checks == 1
    assert statements.borders == 2


def test_the_cpu_of_a_tree_holds_children_that_have_ended() -> None:
    before = tree_cpu_seconds(os.getpid())

    subprocess.run([sys.executable, "-c", BURN], check=True)

    assert tree_cpu_seconds(os.getpid()) - before >= BURNT


def test_the_cpu_of_a_tree_holds_children_that_run() -> None:
    code = f"{BURN}\nprint('burnt', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        used = tree_cpu_seconds(child.pid)
        child.communicate(b"\n")

    assert used >= BURNT


def test_a_process_that_has_gone_has_used_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()

    assert tree_cpu_seconds(child.pid) == 0.0


def test_written_bytes_grow_with_what_is_written(tmp_path: Path) -> None:
    before = own_written_bytes()

    (tmp_path / "file").write_bytes(bytes(100_000))

    assert own_written_bytes() - before >= 100_000


def test_memory_is_that_of_a_python_process() -> None:
    assert own_rss_bytes() > 5 * 1024**2
