"""Wake-ups: one connection per process, noticed when silent, never needed."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import AsyncGenerator
from datetime import timedelta

import anyio
import pytest
import redis

from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import Wake
from forge_jobs.model.transitions import Demand
from forge_jobs.reports import flush_reports
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base import listening
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.driver import messages
from forge_jobs.storage.redis.keys import Keys
from forge_jobs.testing.servers import RedisServer
from tests.support import servers
from tests.support.factories import KIND, QUEUE, enqueue_one, new_job, register
from tests.support.proxy import Proxy
from tests.support.redis_databases import KEYS, opened
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=100)
MINE = frozenset({"a", "[b]{c}"})
ALL = Wake(queues=MINE, handover=True, beat=True, fleet=True, letters=True)


@pytest.fixture
async def database(between: Proxy) -> AsyncGenerator[Database]:
    """A database that listens, and has read all earlier wake-ups."""
    async with opened(between.url, timeout=2) as made:
        assert await made.wait(MINE, LONG) == ALL
        yield made


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PING_AFTER_S", 0.2)


def heard(database: Database) -> tuple[bool, int]:
    """Return whether messages are heard, and how often they were not."""
    health = database.health()
    return health.wakes, health.silences


async def publish(server: RedisServer, database: Database, *topics: str) -> int:
    """Publish as a script does in the end for the fleet, and return the number of receivers."""
    return int(server.command("PUBLISH", database.keys.channel, "\n".join(topics)))


async def publish_to(server: RedisServer, database: Database, queue: str) -> int:
    """Publish as a script does in the end for a queue, and return the number of receivers."""
    return int(server.command("PUBLISH", database.keys.channel_of(queue), ""))


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "forge-jobs wake-ups"]


async def test_the_first_wait_hears_that_it_may_have_missed_something(database: Database) -> None:
    assert await database.wait(MINE, SHORT) == Wake()


async def test_topics_of_one_message(server: RedisServer, database: Database) -> None:
    # As programs of the release before publish.
    queue = "queue " + database.keys.queue("[b]{c}")
    text = "\n".join([queue, "beat", "handover"])
    assert server.command("PUBLISH", database.keys.first_channel, text) == 1
    heard = await database.wait(MINE, LONG)
    assert heard == Wake(queues=frozenset({"[b]{c}"}), beat=True, handover=True)
    assert await database.wait(MINE, SHORT) == Wake()


async def test_a_queue_not_waited_for_stays_for_later(
    server: RedisServer, database: Database
) -> None:
    both = MINE | {"later"}
    assert (await database.wait(both, LONG)).queues == {"later"}
    await publish_to(server, database, "later")
    assert await database.wait(MINE, SHORT) == Wake()
    assert (await database.wait(frozenset({"later"}), LONG)).queues == {"later"}
    assert await database.wait(both, SHORT) == Wake()


async def test_what_concerns_other_queues_and_databases_is_not_heard(
    server: RedisServer, database: Database
) -> None:
    assert await publish_to(server, database, "a") == 1
    assert (await database.wait(MINE, LONG)).queues == {"a"}
    # No program gets any of these wake-ups, so none has any work with them.
    assert await publish_to(server, database, "b") == 0
    elsewhere = Keys(database.keys.prefix, 1)
    assert server.command("PUBLISH", elsewhere.channel_of("a"), "") == 0
    assert server.command("PUBLISH", elsewhere.channel, "beat") == 0


async def test_a_message_of_somebody_elses_is_passed_over(
    server: RedisServer, database: Database
) -> None:
    for channel in (database.keys.channel, database.keys.first_channel):
        for text in (b"\xff\xfe", b"", b"queue", b"*", b"fleets\nqueue \xff"):
            with redis.Redis.from_url(server.url) as client:
                assert client.publish(channel, text) == 1
    await publish(server, database, "beat")
    assert await database.wait(MINE, LONG) == Wake(beat=True)
    assert heard(database) == (True, 0)


async def test_what_comes_between_two_waits_is_kept(
    server: RedisServer, database: Database
) -> None:
    for _ in range(50):
        await publish(server, database, "beat")
        assert await database.wait(MINE, LONG) == Wake(beat=True)


async def test_a_wait_may_be_cancelled_at_any_moment(
    server: RedisServer, database: Database
) -> None:
    for number in range(50):
        with anyio.move_on_after(number * 0.0005):
            await database.wait(MINE, LONG)
    await publish(server, database, "beat")
    assert await database.wait(MINE, LONG) == Wake(beat=True)


async def test_bundles_of_one_store_share_one_connection_and_all_hear(
    server: RedisServer, between: Proxy, database: Database
) -> None:
    prefix = database.keys.prefix
    async with opened(between.url, prefix=prefix) as other:
        assert await other.wait(MINE, SHORT) == Wake()
        assert len(threads()) == 1
        assert await publish(server, database, "fleet") == 1
        assert await database.wait(MINE, LONG) == Wake(fleet=True)
        assert await other.wait(MINE, LONG) == Wake(fleet=True)


async def test_a_bundle_in_another_thread_hears_too(
    server: RedisServer, between: Proxy, database: Database
) -> None:
    ready, heard = threading.Event(), []

    async def listen() -> None:
        async with opened(between.url, prefix=database.keys.prefix) as other:
            ready.set()
            heard.append(await other.wait(MINE, LONG))

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    await anyio.to_thread.run_sync(ready.wait)
    await publish(server, database, "beat")
    await anyio.to_thread.run_sync(thread.join)
    assert heard == [Wake(beat=True)]
    # The connection stays for those who still wait.
    assert await database.wait(MINE, LONG) == Wake(beat=True)
    await publish(server, database, "fleet")
    assert await database.wait(MINE, LONG) == Wake(fleet=True)


async def test_who_never_waits_has_no_connection_for_it(server: RedisServer) -> None:
    async with opened(server.url) as database:
        await database.commands([("GET", database.keys.fleet + ":x")])
        assert threads() == []
        assert server.command("PUBSUB", "NUMSUB", database.keys.channel)[1] == 0


async def test_the_last_that_closes_ends_the_connection(
    server: RedisServer, between: Proxy
) -> None:
    async with opened(between.url) as database:
        await database.wait(MINE, LONG)
        assert len(threads()) == 1
    assert threads() == []
    await wait_until(lambda: between.connections == 0, description="nothing is connected")


async def test_a_ring_of_this_process_needs_no_server(between: Proxy, database: Database) -> None:
    between.refuse()
    given = Wake(queues=frozenset({"a"}), handover=True)
    await anyio.to_thread.run_sync(database.wake, given)
    assert await database.wait(MINE, LONG) == given


async def test_after_a_cut_everybody_is_rung_once(between: Proxy, database: Database) -> None:
    between.cut()
    assert await database.wait(MINE, LONG) == ALL
    assert await database.wait(MINE, SHORT) == Wake()


async def test_a_listener_that_fails_by_a_defect_says_so_and_is_back(
    database: Database, between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [SystemExit(), KeyError("as planted")]
    right = listening.RedisListener.listen

    async def listen(self: listening.RedisListener) -> None:
        if failing:
            raise failing.pop()
        await right(self)

    monkeypatch.setattr(listening.RedisListener, "listen", listen)
    between.cut()
    await wait_until(lambda: not failing, description="it has failed twice")
    await wait_until(lambda: database.health().wakes, description="it is heard again")
    assert database.health().silences
    assert await database.wait(MINE, LONG) == ALL


async def test_an_outage_is_logged_once_and_ends_by_itself(
    server: RedisServer, between: Proxy, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs")
    between.refuse()
    await wait_until(lambda: caplog.messages, description="the loss is logged")
    assert heard(database) == (False, 1)
    # Polling: a wait ends in time, however often there is no connection.
    for _ in range(5):
        assert await database.wait(MINE, SHORT) == Wake()
    between.heal()
    assert await database.wait(MINE, LONG) == ALL
    assert heard(database) == (True, 1)
    assert flush_reports(10)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    for text in caplog.messages:
        assert server.password not in text
        assert "127.0.0.1" not in text
    await publish(server, database, "beat")
    assert await database.wait(MINE, LONG) == Wake(beat=True)


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize("fault", ["swallow_replies", "freeze"])
async def test_a_silent_connection_is_noticed_and_replaced(
    between: Proxy, database: Database, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    getattr(between, fault)()
    await wait_until(lambda: caplog.messages, description="the silence is logged")
    assert await database.wait(MINE, SHORT) == Wake()
    between.heal()
    assert await database.wait(MINE, LONG) == ALL


def test_silence_is_noticed_within_ten_seconds() -> None:
    assert 2 * messages.PING_AFTER_S < 10


@pytest.mark.long
async def test_a_quiet_connection_costs_one_ping_now_and_then(
    server: RedisServer, database: Database
) -> None:
    server.command("CONFIG", "RESETSTAT")
    start = time.monotonic()
    await wait_until(lambda: commands(server, "ping") >= 2, description="it has asked twice")
    # Not more often than intended.
    assert time.monotonic() - start > messages.PING_AFTER_S
    assert await database.wait(MINE, SHORT) == Wake()


def commands(server: RedisServer, name: str) -> int:
    found = server.command("INFO", "commandstats").get(f"cmdstat_{name}", {})
    return int(found.get("calls", 0))


async def test_polling_by_choice_has_no_connection(server: RedisServer) -> None:
    async with opened(server.url, wake="poll") as database:
        assert await database.wait(MINE, SHORT) == Wake()
        assert threads() == []
        assert not database.health().wakes
        database.wake(Wake(beat=True))
        assert await database.wait(MINE, LONG) == Wake(beat=True)


async def test_a_server_that_is_not_there_delays_the_first_wait_by_a_second_at_most() -> None:
    async with opened("redis://127.0.0.1:1") as database:
        start = time.monotonic()
        assert await database.wait(MINE, SHORT) == Wake()
        assert time.monotonic() - start < 10


_FORGETS_TO_CLOSE = """
import asyncio, sys
from datetime import timedelta
from forge_jobs.storage.redis.driver.address import parse_url
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.driver import messages
from forge_jobs.storage.redis.keys import Keys
from forge_jobs.storage.redis.base.listening import waiters_of

async def main():
    global database
    url = parse_url(sys.argv[1])
    database = Database(url, store_id="x", waiters=waiters_of(url, "x"), clock=None)
    print(await database.wait(frozenset(), timedelta(seconds=5)))

asyncio.run(main())
"""


async def test_a_program_that_forgets_to_close_ends_all_the_same(server: RedisServer) -> None:
    with anyio.fail_after(60):
        ended = await anyio.run_process([sys.executable, "-c", _FORGETS_TO_CLOSE, server.url])
    assert b"beat=True" in ended.stdout


async def test_every_server_of_a_cluster_is_heard() -> None:
    url = servers.redis_cluster_url()
    async with opened(url) as database:
        assert await database.wait(MINE, LONG) == ALL
        for number in range(10):
            # Each queue's slot is on some server, and the listener on one.
            key = database.keys.queue(f"q{number}") + ":x"
            text = "return redis.call('PUBLISH', ARGV[1], 'beat')"
            await database.commands([("SET", key, 1)])
            await database.servers.take([[("EVAL", text, 1, key, database.keys.channel)]])
            assert await database.wait(MINE, LONG) == Wake(beat=True)


class ReceivedNotices:
    """Publishes of the server to queues, counted."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._before = commands(server, "publish")

    def take(self) -> int:
        now = commands(self._server, "publish")
        before, self._before = self._before, now
        return now - before


async def claims(storage: Storage, lease: PodLease, limit: int) -> int:
    workers = tuple(f"w{number}" for number in range(limit))
    demand = Demand(worker_ids=workers, limit=limit, kinds=frozenset({KIND}))
    return len((await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed)


def nobody_waits(server: RedisServer) -> None:
    """As a minute after the last one to wait has died."""
    seconds, microseconds = map(int, server.command("TIME"))
    now = seconds * 1_000_000 + microseconds
    noted = server.command("HGET", key := f"{KEYS.queue(QUEUE)}:queue", "waits")
    assert int(noted or now) <= now + 60_000_000, "a waiter that died is forgotten in a minute"
    server.command("HSET", key, "waits", now - 1)


async def test_nothing_is_published_while_nobody_waits(
    server: RedisServer, storage: Storage
) -> None:
    lease = await register(storage)
    nobody_waits(server)
    publishes = ReceivedNotices(server)
    await enqueue_one(storage)
    await storage.jobs.enqueue([new_job(), new_job()])
    assert publishes.take() == 0
    # A pod that gets as many jobs as it asks for does not wait.
    assert await claims(storage, lease, 3) == 3
    await enqueue_one(storage)
    assert publishes.take() == 0
    # Who gets less does, and has noted that in the same step.
    server.command("CONFIG", "RESETSTAT")
    assert await claims(storage, lease, 2) == 1
    assert commands(server, "evalsha") == 1
    publishes = ReceivedNotices(server)
    await enqueue_one(storage)
    await storage.jobs.enqueue([new_job(), new_job()])
    assert publishes.take() == 2


async def test_who_waits_and_claims_nothing_says_so_and_missed_nothing(
    server: RedisServer, storage: Storage
) -> None:
    await enqueue_one(storage)
    nobody_waits(server)
    queues = frozenset({QUEUE})
    async with await storage.reopen() as waiter:
        assert (await waiter.jobs.wait_for_work(queues, LONG)).queues == queues
        for _ in range(3):
            assert not await waiter.jobs.wait_for_work(queues, SHORT)
            await enqueue_one(storage)
            assert (await waiter.jobs.wait_for_work(queues, LONG)).queues == queues


async def test_a_queue_that_comes_into_being_wakes_who_waits_for_it(storage: Storage) -> None:
    queues = frozenset({QUEUE})
    async with await storage.reopen() as waiter:
        while await waiter.jobs.wait_for_work(queues, SHORT):
            pass
        for _ in range(3):
            await enqueue_one(storage)
            assert (await waiter.jobs.wait_for_work(queues, LONG)).queues == queues


async def test_two_hundred_listeners_of_other_queues_hear_nothing_of_an_enqueue(
    server: RedisServer, storage: Storage
) -> None:
    lease = await register(storage)
    assert await claims(storage, lease, 1) == 0
    with redis.Redis.from_url(server.url, max_connections=300) as client:
        listeners = [client.pubsub() for _ in range(200)]
        for number, listener in enumerate(listeners):
            # What a program hears that serves another queue.
            shared = (KEYS.channel, KEYS.first_channel)
            listener.subscribe(KEYS.channel_of(f"other-{number}"), *shared)
        sent = f"{KEYS.channel_of(QUEUE)}"
        publishes = ReceivedNotices(server)
        before = server.command("INFO", "stats")["total_net_output_bytes"]
        await enqueue_one(storage)
        told = server.command("INFO", "stats")["total_net_output_bytes"] - before
        assert publishes.take() == 1
        # What one message to each of them would have cost.
        assert told < 200 * len(sent)
        for listener in listeners:
            listener.close()
