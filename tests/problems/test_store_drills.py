"""Drills of the store: real pods, and a store that is slow, full, used up or held up.

Rules that take minutes are judged by a later clock, on one snapshot.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from msgspec import structs

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.metrics import MINUTE
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.snapshots.reading import read_snapshot
from forge_jobs.policy.judgement.problems import judging
from forge_jobs.policy.judgement.problems.problem import Code, Problem
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support import servers
from tests.support.backends import url_of
from tests.support.factories import new_job
from tests.support.files import url_in
from tests.support.proxy import Proxy, proxy
from tests.support.redis_databases import with_options
from tests.support.runtimes import a_runtime, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

AFTER = {rule.code: rule.after for rule in judging.RULES}
SLOW = 1.05
"""Seconds that each answer takes."""

PATIENT = 110.0
"""Seconds: measurements of two minutes are needed, which begin at whole ones."""


@pytest.fixture
def clock() -> None:
    """The store's own: real pods live by that."""


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the store of the test."""
    return str(request.node.callspec.params["storage"])


@pytest.fixture
async def between(storage: Storage, backend: str, tmp_path: Path) -> AsyncIterator[Proxy]:
    """A proxy before the server. Looks of the test itself do not pass there."""
    with proxy(await url_of(backend, tmp_path)) as made:
        yield made


async def look(storage: Storage, code: Code) -> Problem | None:
    """Return the problem among the first three, once its rule can hold."""
    snapshot = await read_snapshot(storage)
    later = structs.replace(snapshot, now=snapshot.now + AFTER[code])
    listed = [each for each in judging.problems(later)[:3] if each.code is code]
    return listed[0] if listed else None


async def seen(storage: Storage, code: Code) -> Problem:
    """Wait until the problem is seen."""
    try:
        found: Problem = await wait_until(
            lambda: look(storage, code), description=f"{code} is seen", timeout=PATIENT
        )
    except AssertionError as error:
        present = judging.problems(await read_snapshot(storage))
        error.add_note(f"seen: {[(str(each.code), each.evidence) for each in present]}")
        raise
    return found


async def gone(storage: Storage, code: Code) -> None:
    """Wait until the problem is not seen any more."""

    async def is_gone() -> bool:
        return await look(storage, code) is None

    await wait_until(is_gone, description=f"{code} is gone", timeout=PATIENT)


async def minute_of(storage: Storage) -> datetime:
    return (await storage.cron.now()).replace(second=0, microsecond=0)


@asynccontextmanager
async def a_pod(storage: Storage, every: float) -> AsyncIterator[None]:
    """A pod that measures so often, in seconds."""
    settings = quick_settings(rollup_interval=seconds(every))
    async with a_runtime(storage, HandlerRegistry(), settings=settings).start():
        yield


@pytest.mark.long
@pytest.mark.parametrize("storage", ["postgres", "redis"], indirect=True)
async def test_a_server_that_answers_late(storage: Storage, between: Proxy) -> None:
    url = with_options(between.url, timeout=30)
    async with await open_storage(url) as far, a_pod(far, every=6.0):
        await gone(storage, Code.STORE_SLOW)
        before = await minute_of(storage)
        between.slow_down(replies=SLOW)
        problem = await seen(storage, Code.STORE_SLOW)
        assert before <= problem.since <= await storage.cron.now()
        assert "takes longer than" in problem.evidence
        between.heal()
        await gone(storage, Code.STORE_SLOW)


@contextmanager
def hogging(path: Path) -> Iterator[None]:
    """Another program has the write lock of the file nearly all of the time."""
    ends = threading.Event()

    def hog() -> None:
        with sqlite3.connect(path, isolation_level=None, timeout=60) as other:
            while not ends.is_set():
                other.execute("BEGIN IMMEDIATE")
                ends.wait(1.5)
                other.execute("COMMIT")
                ends.wait(0.05)
        other.close()

    thread = threading.Thread(target=hog)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_a_file_that_another_program_writes(storage: Storage, tmp_path: Path) -> None:
    path = Path(urlsplit(url_in(tmp_path)).path)
    async with a_pod(storage, every=8.0):
        await gone(storage, Code.STORE_SLOW)
        before = await minute_of(storage)
        with hogging(path):
            problem = await seen(storage, Code.STORE_SLOW)
            assert before <= problem.since <= await storage.cron.now()
        await gone(storage, Code.STORE_SLOW)


@pytest.mark.long
@pytest.mark.parametrize("storage", ["postgres", "redis"], indirect=True)
async def test_a_pool_of_one_connection(storage: Storage, between: Proxy) -> None:
    url = with_options(between.url, timeout=30, pool_size=1)

    async def reads(busy: Storage) -> None:
        while True:
            await busy.jobs.list(JobFilter())

    async with await open_storage(url) as narrow, a_pod(narrow, every=0.5):
        before = await minute_of(storage)
        between.slow_down(replies=0.02)
        calls = [asyncio.create_task(reads(narrow)) for _ in range(8)]
        problem = await seen(storage, Code.POOL_EXHAUSTED)
        assert before <= problem.since <= before + 2 * MINUTE
        assert "All 1 connection of pod" in problem.evidence
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        between.heal()
        await gone(storage, Code.POOL_EXHAUSTED)


@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
async def test_a_transaction_that_nobody_ends(storage: Storage, tmp_path: Path) -> None:
    url = await url_of("postgres", tmp_path)
    assert await look(storage, Code.OLD_TRANSACTION) is None
    before = await storage.cron.now()
    # Its end is the server's: the session is ended.
    with psycopg.connect(url) as forgotten, psycopg.connect(url, autocommit=True) as other:
        forgotten.execute("SELECT pg_current_xact_id()")
        problem = await seen(storage, Code.OLD_TRANSACTION)
        # The look reads the time of the store before it asks for the transactions.
        assert before - MINUTE <= problem.since <= await storage.cron.now()
        assert "pg_stat_activity" in problem.action
        # What the action says: the session that has this begin.
        [(nearest,)] = other.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            " ORDER BY abs(extract(epoch FROM xact_start - %s)) LIMIT 1",
            (problem.since,),
        ).fetchall()
        assert nearest == forgotten.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s)", (nearest,))
        await gone(storage, Code.OLD_TRANSACTION)
        forgotten.close()


@pytest.mark.long
async def test_a_server_whose_memory_is_nearly_used() -> None:
    with servers.a_redis() as server:
        async with await open_storage(server.url) as storage:
            assert await look(storage, Code.STORE_FULL) is None
            payload = '{"text":"' + "x" * 10_000 + '"}'
            await storage.jobs.enqueue([new_job(payload=payload) for _ in range(500)])
            before = await storage.cron.now()

            async def seen_when_nearly_used() -> Problem | None:
                # The server gives memory back that the enqueue took, some seconds later.
                used = (await storage.report()).memory_bytes or 0
                server.command("CONFIG", "SET", "maxmemory", str(round(used / 0.95)))
                return await look(storage, Code.STORE_FULL)

            problem = await wait_until(
                seen_when_nearly_used, description="store_full is seen", timeout=PATIENT
            )
            assert before <= problem.since <= await storage.cron.now()
            assert "are used." in problem.evidence
            assert "Make room" in problem.action
            async with Operator(storage, Actor(name="ada", access=ALL)) as operator:
                await operator.delete_jobs(JobFilter())
            await gone(storage, Code.STORE_FULL)
