"""A program that enqueues now and then commits and wakes others in one message, in this order."""

import weakref
from datetime import timedelta
from typing import Any

import anyio
import asyncpg
import pytest

from forge_jobs.errors import StorageError
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres import announcing
from forge_jobs.storage.sql.postgres.driver.literals import fit_as_literals, literals
from tests.support.factories import QUEUE, enqueue_one, new_job
from tests.support.postgres import database_of, raw
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def a_quiet_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wake-up is too early after the one before, and no earlier test has left a pace."""
    monkeypatch.setattr(announcing, "_paces", weakref.WeakValueDictionary())
    monkeypatch.setattr(announcing, "_QUIET_S", -3600.0)


@pytest.fixture
async def asked(storage: Storage) -> list[str]:
    """Statements of the one connection from now on. The queue of the store is known."""
    await enqueue_one(storage)
    connections = database_of(storage)._connections
    await wait_until(lambda: connections._idle, description="the notice is sent")
    texts: list[str] = []
    [idle] = connections._idle
    idle._driver.add_query_logger(lambda record: texts.append(record.query))
    return texts


def is_one_message(text: str) -> bool:
    enqueued, _, told = text.partition("; COMMIT; ")
    return enqueued.startswith("BEGIN; EXECUTE ") and told.startswith("SELECT pg_notify(")


async def test_a_job_alone_and_its_wake_up_are_one_message(
    storage: Storage, asked: list[str]
) -> None:
    for _ in range(3):
        await enqueue_one(storage)
    assert [text for text in asked if "notify" in text.lower()] == asked[-3:]
    assert all(is_one_message(text) for text in asked[-3:])
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 4


async def test_soon_after_another_wake_up_the_caller_waits_for_the_job_alone(
    storage: Storage, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "_QUIET_S", 3600.0)
    await enqueue_one(storage)
    assert asked
    assert not any(is_one_message(text) for text in asked)


async def test_later_jobs_and_several_have_no_wake_up_in_their_message(
    storage: Storage, asked: list[str]
) -> None:
    await storage.jobs.enqueue([new_job(delay=timedelta(hours=1))])
    await storage.jobs.enqueue([new_job(), new_job()])
    assert asked
    assert not any(is_one_message(text) for text in asked)


async def test_where_a_waiter_of_this_process_waits_others_hear_later(
    storage: Storage, asked: list[str]
) -> None:
    queues, long = frozenset({QUEUE}), timedelta(minutes=1)
    while await storage.jobs.wait_for_work(queues, timedelta(0)):
        pass
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.jobs.wait_for_work, queues, long)
        await anyio.wait_all_tasks_blocked()
        await enqueue_one(storage)
    assert not any(is_one_message(text) for text in asked)


HOSTILE = [
    "it's",
    "\\",
    "\\'; DROP TABLE forge_jobs; --",
    "'); COMMIT; DELETE FROM forge_jobs; --",
    "$f$ $1 :size E'\\n' \n\r\t\x01",
    "ünïcödé \U0001f600 \u2028",
]


@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_texts_arrive_as_they_are(url: str, conforming: str) -> None:
    async with raw(url) as operator:
        name = await operator.fetchval("SELECT quote_ident(current_database())")
        await operator.execute(
            f"ALTER DATABASE {name} SET standard_conforming_strings = {conforming};"
            f" ALTER DATABASE {name} SET backslash_quote = on"
        )
    async with await open_storage(url) as storage:
        await enqueue_one(storage)
        database: Any = database_of(storage)
        sent: list[str] = []
        plain = database.announcer.with_commit

        def with_commit(topic: str) -> str | None:
            sent.append(topic)
            notice: str | None = plain(topic)
            return notice

        database.announcer.with_commit = with_commit
        for text in HOSTILE:
            job = new_job(payload=text, trace=text, tags=(text.replace(",", " "),))
            await storage.jobs.enqueue([job])
            stored = (await storage.jobs.get([job.id]))[job.id]
            assert (stored.payload, stored.trace) == (text, text)
            assert stored.tags == job.tags
        assert len(sent) == len(HOSTILE)


async def test_a_commit_that_fails_is_an_error_and_stores_nothing(
    storage: Storage, asked: list[str], url: str
) -> None:
    async with raw(url) as operator:
        await operator.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '54000'; END $$;"
            " CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON forge_jobs"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        with pytest.raises(StorageError):
            await enqueue_one(storage)
        assert any(is_one_message(text) for text in asked)
        await operator.execute("DROP TRIGGER refuse ON forge_jobs")
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 1
    await enqueue_one(storage)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 2


async def test_a_connection_that_is_lost_meanwhile_stores_the_job_once(
    storage: Storage, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [idle] = database_of(storage)._connections._idle
    execute = idle._driver.execute

    async def executed(statement: str) -> str:
        answer: str = await execute(statement)
        if is_one_message(statement):
            idle._driver.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle")
        return answer

    # The driver's connection takes no attributes.
    class Cut:
        def __getattr__(self, name: str) -> Any:
            return executed if name == "execute" else getattr(driver, name)

    driver = idle._driver
    monkeypatch.setattr(idle, "_driver", Cut())
    await enqueue_one(storage)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 2


def test_what_a_message_cannot_hold_goes_as_a_parameter() -> None:
    assert fit_as_literals(["a", 1, None, True])
    assert not fit_as_literals(["a\0b"])
    assert not fit_as_literals(["x" * 4_000, "y" * 4_001])
    assert literals(["a", 1, None, True, False, -2]) == "E'a', 1, NULL, TRUE, FALSE, -2"
    with pytest.raises(TypeError):
        literals([1.5])  # type: ignore[list-item]
