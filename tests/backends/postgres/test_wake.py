"""Notices: with the commit, from any process, noticed when they stop, replaced by polling."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import anyio
import pytest
from msgspec import structs

from forge_jobs.model.queues import Wake
from forge_jobs.outages import Pauses
from forge_jobs.reports import flush_reports
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage, StoreHealth
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.enqueue import enqueue
from forge_jobs.storage.sql.postgres import listening
from forge_jobs.storage.sql.postgres.announcing import payloads
from tests.support.factories import QUEUE, enqueue_one, new_job
from tests.support.postgres import database_of, raw, with_options
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

MINE = frozenset({QUEUE})
LONG = timedelta(seconds=30)
SHORT = timedelta(milliseconds=50)


def listens(storage: Storage) -> bool:
    waiters = database_of(storage).waiters
    assert waiters is not None
    return waiters.is_listening


async def quiet(storage: Storage) -> None:
    while await storage.jobs.wait_for_work(MINE, SHORT):
        pass


async def end_the_listener(url: str) -> None:
    async with raw(url) as connection:
        ended = await connection.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'NOTIFY%'"
        )
    assert ended == 1


async def test_a_program_that_waits_for_nothing_does_not_listen(storage: Storage, url: str) -> None:
    await enqueue_one(storage)
    assert not listens(storage)
    async with raw(url) as connection:
        assert not await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'NOTIFY%'"
        )


async def test_one_connection_listens_for_all_bundles_of_a_process(
    storage: Storage, url: str
) -> None:
    async with await storage.reopen() as other:
        await quiet(storage)
        await quiet(other)
        async with raw(url) as connection:
            assert (
                await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND query LIKE 'NOTIFY%'"
                )
                == 1
            )
        await enqueue_one(other)
        assert QUEUE in (await storage.jobs.wait_for_work(MINE, LONG)).queues
        assert QUEUE in (await other.jobs.wait_for_work(MINE, LONG)).queues
    assert listens(storage), "one bundle less is no reason to stop"


async def test_a_call_that_is_rolled_back_wakes_nobody(storage: Storage) -> None:
    await quiet(storage)

    def script(tx: Tx) -> None:
        enqueue(tx, [new_job()])
        tx.finish()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database_of(storage).write(script)
    assert await storage.jobs.wait_for_work(MINE, SHORT) == Wake()


async def test_any_number_of_topics_and_any_name_fits(storage: Storage) -> None:
    await quiet(storage)
    smile = "\N{GRINNING FACE}" * 190
    names = [f"{smile}{n}" for n in range(40)]
    await storage.jobs.enqueue([new_job(queue=name) for name in names])
    woken: set[str] = set()
    with anyio.fail_after(20):
        while len(woken) < len(names):
            woken |= (await storage.jobs.wait_for_work(frozenset(names), LONG)).queues


def test_notices_stay_below_the_servers_limit() -> None:
    topics = [f"queue:{'x' * 190}{n}" for n in range(1000)]
    made = payloads(topics, "@me")
    assert max(len(payload.encode()) for payload in made) < 8000
    assert all(payload.startswith("@me,") for payload in made)
    assert ",".join(payloads(topics)) == ",".join(topics)


async def test_a_listener_that_fails_by_a_defect_says_so_and_is_back(
    storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quiet(storage)
    failing = [SystemExit(), KeyError("as planted")]
    right = listening.PostgresListener.listen

    async def listen(self: listening.PostgresListener) -> None:
        if failing:
            raise failing.pop()
        await right(self)

    monkeypatch.setattr(listening.PostgresListener, "listen", listen)
    monkeypatch.setattr(listening, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(listening.PostgresListener, "pauses", Pauses(0.05, 1.0))
    await end_the_listener(url)
    await wait_until(lambda: not failing, description="it has failed twice")
    await wait_until(lambda: listens(storage), description="it listens again")
    assert storage.health().silences


def of_wakes(storage: Storage) -> StoreHealth:
    """The health without the figures of the pool."""
    return structs.replace(storage.health(), pool_size=0, pool_in_use=0, pool_waits=0)


async def test_a_listener_that_is_lost_is_replaced_by_polling_and_comes_back(
    storage: Storage, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "PING_EVERY_S", 0.2)
    caplog.set_level(logging.INFO)
    await quiet(storage)
    assert listens(storage)
    await end_the_listener(url)
    with anyio.fail_after(20):
        wake = await storage.jobs.wait_for_work(MINE, LONG)
    assert wake == Wake(queues=MINE, handover=True, beat=True, fleet=True, letters=True)
    assert of_wakes(storage) == StoreHealth(wakes=False, silences=1)
    await wait_until(lambda: listens(storage), description="it listens again")
    assert of_wakes(storage) == StoreHealth(wakes=True, silences=1)
    assert flush_reports(10)
    said = [record.message for record in caplog.records if "listening" in record.name]
    assert [text for text in said if "no wake-ups arrive" in text] == said[:1]
    assert "arrive from the store again" in said[-1]
    wake = await storage.jobs.wait_for_work(MINE, LONG)
    assert wake.queues == MINE, "something may have been missed"
    await quiet(storage)
    await enqueue_one(storage)
    assert (await storage.jobs.wait_for_work(MINE, LONG)).queues == MINE


async def test_a_silent_connection_is_noticed_by_its_own_ping(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listening.PING_EVERY_S + listening.PING_ANSWER_S < 10
    monkeypatch.setattr(listening, "PING_EVERY_S", 0.1)
    monkeypatch.setattr(listening, "PING_ANSWER_S", 0.3)
    await quiet(storage)

    async def swallowed(self: Any, connection: Any) -> None:
        """As through a pooler: the statement succeeds and no notice comes."""
        self._echo.clear()
        async with asyncio.timeout(listening.PING_ANSWER_S):
            await connection.execute("NOTIFY elsewhere")
            await self._echo.wait()

    with monkeypatch.context() as patched:
        patched.setattr(listening.PostgresListener, "_ping", swallowed)
        await wait_until(lambda: not listens(storage), description="the silence is noticed")
        await quiet_for_polling(storage)
        await enqueue_one(storage)
        with anyio.fail_after(20):
            assert (await storage.jobs.wait_for_work(MINE, LONG)).queues == MINE
    await wait_until(lambda: listens(storage), description="it listens again")


async def quiet_for_polling(storage: Storage) -> None:
    await storage.jobs.wait_for_work(MINE, SHORT)


async def test_without_listening_waiters_poll(url: str) -> None:
    async with await open_storage(with_options(url, wake="poll")) as storage:
        first = await storage.jobs.wait_for_work(MINE, SHORT)
        assert first == Wake()
        with anyio.fail_after(20):
            wake = await storage.jobs.wait_for_work(MINE, LONG)
        assert wake == Wake(queues=MINE, handover=True)
        assert not listens(storage)


async def test_polling_still_hears_of_its_own_process_at_once(url: str) -> None:
    async with await open_storage(with_options(url, wake="poll")) as storage:
        await storage.jobs.wait_for_work(MINE, SHORT)
        await enqueue_one(storage)
        assert (await storage.jobs.wait_for_work(MINE, SHORT)).queues == MINE
