"""Notices come right after the commit, few of them, and never at an enqueue's expense."""

import os
import signal
import sys
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import asyncpg
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.queues import Wake
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres import announcing
from forge_jobs.storage.sql.postgres.announcing import Pace, topics_in
from forge_jobs.storage.sql.postgres.flavor import channel_of
from forge_jobs.testing.servers import PostgresServer
from tests.support.factories import QUEUE, enqueue_one, new_job
from tests.support.postgres import database_of, raw, with_options
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

CHANNEL = channel_of("public")
END = "end"


class ReceivedNotices:
    """The notices of a store, each as a list of topics."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.payloads: list[str] = []

    def note(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self.payloads.append(payload)

    async def so_far(self) -> list[list[str]]:
        """All that came before this call, which is asked by a notice behind them."""
        await self._connection.execute(f"NOTIFY {CHANNEL}, '{END}'")
        await wait_until(lambda: END in self.payloads, description="the last notice is heard")
        told = [each for each in self.payloads if each != END]
        self.payloads.clear()
        return [[topic for topic in each.split(",") if topic[0] != "@"] for each in told]

    async def have(self, count: int) -> list[list[str]]:
        """The notices, once there are so many."""
        await wait_until(lambda: len(self.payloads) >= count, description="they are heard")
        return await self.so_far()


@asynccontextmanager
async def listening_to(url: str) -> AsyncGenerator[ReceivedNotices]:
    async with raw(url) as connection:
        heard = ReceivedNotices(connection)
        await connection.add_listener(CHANNEL, heard.note)
        yield heard


@pytest.fixture
async def heard(url: str) -> AsyncGenerator[ReceivedNotices]:
    async with listening_to(url) as heard:
        yield heard


@pytest.fixture(autouse=True)
def fresh_paces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database of an earlier test may come again, and the known pace with that."""
    monkeypatch.setattr(announcing, "_paces", weakref.WeakValueDictionary())


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-ups that are not sent at once are sent by the close."""
    monkeypatch.setattr(announcing, "APART_S", 3600.0)
    monkeypatch.setattr(announcing, "_LONGEST_APART_S", 3600.0)


async def test_the_first_is_told_at_once_and_the_others_together(
    long_pauses: None, url: str, heard: ReceivedNotices
) -> None:
    async with await open_storage(url) as storage:
        await enqueue_one(storage)
        assert await heard.have(1) == [[f"queue:{QUEUE}"]]
        for _ in range(20):
            await enqueue_one(storage)
        await storage.jobs.enqueue([new_job(queue="other")])
        assert await heard.have(1) == [["queue:other"]]
        async with await storage.reopen() as second:
            await enqueue_one(second)
        assert await heard.have(1) == [[f"queue:{QUEUE}"]]
    assert await heard.have(1) == [[f"queue:{QUEUE}"]]


async def test_others_are_told_a_moment_after_who_waits_here(
    url: str, heard: ReceivedNotices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "WOKEN_APART_S", 3600.0)
    async with await open_storage(url) as storage, anyio.create_task_group() as tasks:
        jobs = storage.jobs
        await enqueue_one(storage)
        assert await heard.have(1) == [[f"queue:{QUEUE}"]]
        # Wake-ups from before the first wait, and the listener's start, end this wait.
        queues, long = frozenset({"mine"}), timedelta(minutes=1)
        while await jobs.wait_for_work(queues, timedelta(0)):
            pass
        woken: list[Wake] = []

        async def wait() -> None:
            woken.append(await jobs.wait_for_work(queues, long))

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await jobs.enqueue([new_job(queue="theirs"), new_job(queue="mine")])
        assert await heard.have(1) == [["queue:theirs"]]
        await wait_until(lambda: woken, description="who waits here is woken at once")
        assert woken == [Wake(queues=queues)]
        await jobs.enqueue([new_job(queue="mine")])
    assert await heard.have(1) == [["queue:mine"]]


async def test_others_are_told_within_the_pause(
    storage: Storage, heard: ReceivedNotices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "APART_S", 2.0)
    monkeypatch.setattr(announcing, "_LONGEST_APART_S", 2.0)
    await enqueue_one(storage)
    assert await heard.have(1) == [[f"queue:{QUEUE}"]]
    await enqueue_one(storage)
    # Nothing else happens: the end of the pause sends the wake-up.
    assert await heard.have(1) == [[f"queue:{QUEUE}"]]


async def test_a_transaction_of_ours_holds_no_notice(storage: Storage) -> None:
    await enqueue_one(storage)
    statements: list[str] = []
    [idle] = await idle_of(storage)
    idle._driver.add_query_logger(lambda record: statements.append(record.query))
    await enqueue_one(storage)
    await storage.jobs.cancel(JobFilter(ids=(await enqueue_one(storage),)))
    await storage.aclose()
    with_notice = [each for each in statements if "notify" in each.lower()]
    assert with_notice
    # A notice in the message of a commit stands behind the commit.
    behind = [each.rpartition("COMMIT; ")[2] for each in with_notice]
    assert all(each.startswith("SELECT pg_notify(") for each in behind)


async def idle_of(storage: Storage) -> list[Any]:
    connections = database_of(storage)._connections
    await wait_until(lambda: connections._idle, description="the notice is sent")
    return connections._idle


async def test_nobody_is_told_where_everybody_polls(url: str, heard: ReceivedNotices) -> None:
    async with await open_storage(with_options(url, wake="poll")) as storage:
        await enqueue_one(storage)
        await storage.jobs.enqueue([new_job() for _ in range(3)])
        async with raw(url) as mine, mine.transaction():
            await storage.jobs.enqueue([new_job()], connection=mine)
    assert await heard.so_far() == []


async def test_a_callers_transaction_tells_with_its_commit_unless_it_is_switched_off(
    storage: Storage, url: str, heard: ReceivedNotices
) -> None:
    await enqueue_one(storage)
    await heard.have(1)
    async with raw(url) as mine:
        async with mine.transaction():
            await storage.jobs.enqueue([new_job()], connection=mine)
            assert await heard.so_far() == []
        assert await heard.have(1) == [[f"queue:{QUEUE}"]]
        await mine.execute("SELECT forge_enqueue('sync', queue => $1)", QUEUE)
        assert await heard.have(1) == [[f"queue:{QUEUE}"]]
        await mine.execute("SET forge_jobs.notify = off")
        async with mine.transaction():
            await storage.jobs.enqueue([new_job()], connection=mine)
        await mine.execute("SELECT forge_enqueue('sync', queue => $1)", QUEUE)
        assert await heard.so_far() == []


@pytest.fixture
def small() -> Iterator[PostgresServer]:
    """Yield a server with the smallest queue of notices, which older servers cannot set."""
    with PostgresServer(settings={"max_notify_queue_pages": "64"}) as server:
        yield server


async def test_a_full_queue_of_notices_is_no_error_of_an_enqueue(
    small: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        await open_storage(small.url) as storage,
        raw(small.url) as deaf,
        raw(small.url) as talker,
    ):
        await enqueue_one(storage)
        await deaf.execute("LISTEN anything")
        await deaf.execute("BEGIN; SELECT 1")
        fills = (
            "SELECT pg_notify('anything', lpad(n::text, 7900)) FROM generate_series(1, 1000) AS n"
        )
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            await talker.execute(fills)
        for _ in range(5):
            await enqueue_one(storage)
        # The commit of a caller would be the call that fails, unless notices are switched off.
        await talker.execute("SET forge_jobs.notify = off")
        async with talker.transaction():
            await storage.jobs.enqueue([new_job()], connection=talker)
        assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 7
    told = [each.getMessage() for each in caplog.records if "were not woken" in each.getMessage()]
    assert len(told) == 1


_PROGRAM = """
import asyncio, os, signal, sys
from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.postgres.announcing import Announcer

async def main(url, how):
    storage = await open_storage(url)
    if how == "killed":
        Announcer.with_commit = lambda *_: None
        Announcer.announce = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    client = JobClient(storage)
    for _ in range(2):
        await client.enqueue(EnqueueRequest("kind", queue="default"))
    if how == "closed":
        await client.aclose()
        await storage.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


async def run_program(url: str, how: str) -> int:
    command = [sys.executable, "-c", _PROGRAM, url, how]
    ran = await anyio.run_process(command, check=False, stderr=None, env=dict(os.environ))
    return ran.returncode


@pytest.mark.daily("just ends")
@pytest.mark.parametrize("how", ["closed", "just ends"])
async def test_a_program_that_enqueues_and_ends_has_told_of_it(
    storage: Storage, url: str, heard: ReceivedNotices, how: str
) -> None:
    assert await run_program(url, how) == 0
    assert await heard.so_far()


async def test_a_notice_that_is_lost_to_a_kill_costs_a_beat(url: str, storage: Storage) -> None:
    handlers = HandlerRegistry()
    ran = anyio.Event()

    @handlers.job("kind", keep_result=False)
    async def handle() -> None:
        ran.set()

    async with a_runtime(storage, handlers).start() as pod:
        await wait_until(lambda: not pod.health().problems, description="the pod works")
        assert await run_program(url, "killed") == -signal.SIGKILL
        with anyio.fail_after(30):
            await ran.wait()


def test_a_process_passes_over_what_it_has_sent() -> None:
    mine = announcing.payloads(["queue:a", "queue:b"], announcing._this_process())
    assert [topics_in(each) for each in mine] == [[]]
    assert topics_in("@another,queue:a,beat") == ["queue:a", "beat"]
    assert topics_in("queue:a,beat") == ["queue:a", "beat"]


def test_pauses_grow_with_what_notices_take_longer_than_they_need() -> None:
    pace = Pace()
    assert pace.turn("a", 10.0) == 10.0
    assert pace.turn("a", 10.0) == pytest.approx(10.0 + announcing.APART_S)
    assert pace.turn("b", 10.0) == 10.0
    # A long way alone is no load.
    for _ in range(5):
        pace.note(0.2)
    assert pace.turn("c", 10.0) == 10.0
    assert pace.turn("c", 10.0) == pytest.approx(10.0 + announcing.APART_S)
    pace.note(0.21)
    pace.turn("d", 10.0)
    assert 10.1 < pace.turn("d", 10.0) <= 10.0 + 0.21
    pace.note(60.0)
    pace.turn("e", 10.0)
    assert pace.turn("e", 10.0) == pytest.approx(10.0 + announcing._LONGEST_APART_S)
