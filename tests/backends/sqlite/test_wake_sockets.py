"""Processes on one file wake each other. A look at the file finds processes that cannot."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.sqlite import wake_sockets
from forge_jobs.storage.sql.sqlite.wake_sockets import WakeSender, WakeSocket, folder_of
from tests.support.factories import QUEUE, enqueue_one, new_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LONG = timedelta(seconds=20)
NONE = timedelta(0)
QUEUES = frozenset({QUEUE})

_ENQUEUE = """
import asyncio, sys
from forge_jobs.storage.opening import open_storage
from tests.support.factories import new_job

async def main():
    async with await open_storage(sys.argv[1]) as storage:
        await storage.jobs.enqueue([new_job()])

asyncio.run(main())
"""

_LISTEN = """
import asyncio, sys
from datetime import timedelta
from forge_jobs.storage.opening import open_storage

async def main():
    storage = await open_storage(sys.argv[1])
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    print("listens", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def looker_of(storage: Storage) -> object:
    return storage.jobs._database._watcher  # type: ignore[attr-defined]


def file_of(storage: Storage) -> Path:
    return storage.jobs._database.path  # type: ignore[attr-defined, no-any-return]


async def listen_without_looks(storage: Storage) -> None:
    """From now on only a wake-up tells the store's waiters anything."""
    while await storage.jobs.wait_for_work(QUEUES, NONE):
        pass
    looker_of(storage)._look_at = float("inf")  # type: ignore[attr-defined]


def sockets_of(storage: Storage) -> list[str]:
    folder = folder_of(file_of(storage))
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture
def listener(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that has waited for work once, and lives."""
    with subprocess.Popen([sys.executable, "-c", _LISTEN, url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        yield process
        process.kill()


async def test_a_commit_of_another_process_wakes_without_a_look(storage: Storage, url: str) -> None:
    await listen_without_looks(storage)
    await anyio.run_process([sys.executable, "-c", _ENQUEUE, url])
    assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
    assert not await storage.jobs.wait_for_work(QUEUES, NONE)


@pytest.mark.long
async def test_who_waits_while_it_comes_is_woken(storage: Storage, url: str) -> None:
    await listen_without_looks(storage)
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.run_process, [sys.executable, "-c", _ENQUEUE, url])
        assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES


async def test_commits_are_not_sent_to_the_own_process(storage: Storage) -> None:
    async with await storage.reopen() as other:
        await listen_without_looks(storage)
        await listen_without_looks(other)
        assert len(sockets_of(storage)) == 2
        heard: list[object] = []
        looker_of(other)._socket._tell = heard.append  # type: ignore[attr-defined]
        await enqueue_one(storage)
        assert (await other.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
        assert heard == []


async def test_a_store_that_is_closed_leaves_no_socket_and_no_folder(
    storage: Storage, url: str
) -> None:
    async with await open_storage(url) as other:
        await other.jobs.wait_for_work(QUEUES, NONE)
        assert len(sockets_of(storage)) == 1
    assert not folder_of(file_of(storage)).exists()


async def test_the_socket_of_a_killed_process_is_removed_by_the_next_commit(
    storage: Storage, listener: "subprocess.Popen[bytes]"
) -> None:
    assert len(sockets_of(storage)) == 1
    listener.kill()
    listener.wait()
    await enqueue_one(storage)
    assert sockets_of(storage) == []


async def test_a_frozen_listener_holds_nobody_up(
    storage: Storage, listener: "subprocess.Popen[bytes]"
) -> None:
    listener.send_signal(signal.SIGSTOP)
    # More than the system keeps for a socket without a reader.
    for _ in range(600):
        await enqueue_one(storage)
    assert len(sockets_of(storage)) == 1


@pytest.mark.long
async def test_where_sockets_are_not_possible_a_look_finds_what_came(
    storage: Storage, url: str
) -> None:
    folder_of(file_of(storage)).write_text("in the way")
    await storage.jobs.wait_for_work(QUEUES, NONE)
    assert looker_of(storage)._socket is None  # type: ignore[attr-defined]
    await anyio.run_process([sys.executable, "-c", _ENQUEUE, url])
    assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES


async def test_a_program_without_forge_jobs_is_noticed_by_a_look(
    storage: Storage, url: str
) -> None:
    await storage.jobs.wait_for_work(QUEUES, NONE)
    async with await open_storage(url) as other:
        other.jobs._database._sender = None  # type: ignore[attr-defined]
        await other.jobs.enqueue([new_job()])
    assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES


async def test_paths_longer_than_an_address_work(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    heard: list[list[tuple[str, int]]] = []
    listening = WakeSocket.open(folder / "jobs.db", heard.append)
    assert listening is not None
    sender = WakeSender(folder / "jobs.db")
    try:
        _send_from_elsewhere(sender, [("queue:a", 1)])
        await wait_until(lambda: heard, description="the datagram arrived")
    finally:
        sender.close()
        listening.close()
    assert heard == [[("queue:a", 1)]]
    assert list(folder.iterdir()) == []


async def test_more_signals_than_one_datagram_takes_arrive_in_several(tmp_path: Path) -> None:
    signals = [(f"queue:{'x' * 200}-{number}", number) for number in range(1_000)]
    heard: list[tuple[str, int]] = []
    listening = WakeSocket.open(tmp_path / "jobs.db", heard.extend)
    assert listening is not None
    sender = WakeSender(tmp_path / "jobs.db")
    try:
        _send_from_elsewhere(sender, signals)
        await wait_until(lambda: len(heard) == 1_000, description="all signals arrived")
    finally:
        sender.close()
        listening.close()
    assert heard == signals


async def test_a_datagram_that_means_nothing_is_passed_over(tmp_path: Path) -> None:
    heard: list[list[tuple[str, int]]] = []
    listening = WakeSocket.open(tmp_path / "jobs.db", heard.append)
    assert listening is not None
    [path] = folder_of(tmp_path / "jobs.db").iterdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for message in (b"", b"\xff\xfe", b"\x93abc"):
            with wake_sockets._Address(path) as address:
                sender.sendto(message, address)
    wake_sender = WakeSender(tmp_path / "jobs.db")
    try:
        _send_from_elsewhere(wake_sender, [("beat", 7)])
        await wait_until(lambda: heard, description="the next datagram arrived")
    finally:
        wake_sender.close()
        listening.close()
    assert heard == [[("beat", 7)]]


async def test_a_listener_that_comes_within_a_tick_of_the_folders_clock_is_rung(
    tmp_path: Path,
) -> None:
    file = tmp_path / "jobs.db"
    soon = time.time_ns() + 10**10
    sender = WakeSender(file)
    heard: list[str] = []
    listening = []
    try:
        for number in (1, 2):
            one = WakeSocket.open(file, lambda news: heard.append(news[0][0]))
            assert one is not None
            listening.append(one)
            # Both came at the same time, by the clock of the folder.
            os.utime(folder_of(file), ns=(soon, soon))
            _send_from_elsewhere(sender, [(f"queue:{number}", 1)])
            await wait_until(
                partial(_arrived, heard, f"queue:{number}", number),
                description="all who listen have heard",
            )
    finally:
        sender.close()
        for one in listening:
            one.close()


def _arrived(heard: list[str], topic: str, times: int) -> bool:
    return heard.count(topic) == times


def _send_from_elsewhere(sender: WakeSender, signals: list[tuple[str, int]]) -> None:
    """As if the sockets of this process were another's."""
    ours = dict(wake_sockets._ours)
    wake_sockets._ours.clear()
    try:
        sender.send(signals)
    finally:
        wake_sockets._ours.update(ours)


async def test_the_folder_is_closed_to_other_users(storage: Storage) -> None:
    await storage.jobs.wait_for_work(QUEUES, NONE)
    assert folder_of(file_of(storage)).stat().st_mode & 0o777 == 0o700


async def test_a_private_file_needs_no_sockets() -> None:
    async with await open_storage("sqlite:///:memory:") as storage:
        await storage.jobs.wait_for_work(QUEUES, NONE)
        assert sockets_of(storage) == []


def test_an_event_loop_that_ended_without_closing_its_store_leaves_a_socket_that_goes(
    tmp_path: Path,
) -> None:
    heard: list[object] = []

    async def listen() -> WakeSocket:
        found = WakeSocket.open(tmp_path / "jobs.db", heard.append)
        assert found is not None
        return found

    asyncio.run(listen()).close()
    assert list(tmp_path.iterdir()) == []
