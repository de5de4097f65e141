"""More requests than one statement takes: copied, all or none."""

from datetime import timedelta
from typing import Any

import anyio
import pytest
from asyncpg import Connection

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Locked
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.queues import Wake
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres.short import bulk
from tests.support.factories import QUEUE, counters, enqueue_one, new_job
from tests.support.postgres import raw

pytestmark = pytest.mark.anyio

MINE, OTHERS = frozenset({QUEUE}), frozenset({"others"})
LONG, SHORT = timedelta(seconds=30), timedelta(milliseconds=50)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the copied rows, call by call, and copy whatever fits."""
    monkeypatch.setattr(bulk, "FEW", 0)
    return copies_of(monkeypatch)


def copies_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    copy = Connection.copy_records_to_table

    async def noted(self: Any, table: str, *, records: Any, **options: Any) -> str:
        rows = list(records)
        calls.append(len(rows))
        return await copy(self, table, records=rows, **options)

    monkeypatch.setattr(Connection, "copy_records_to_table", noted)
    return calls


async def test_only_calls_with_many_requests_are_copied(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = copies_of(monkeypatch)
    await enqueue_one(storage)
    async with JobClient(storage) as client:
        for size in (bulk.FEW, bulk.FEW + 1):
            requests = [EnqueueRequest("kind", {"n": n}, queue=QUEUE) for n in range(size)]
            outcomes = await client.enqueue_many(requests)
            assert [each.deduplicated for each in outcomes] == [False] * size
    assert copied == [bulk.FEW + 1]
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 2 * bulk.FEW + 2
    assert await counters(storage) == {"enqueued": 2 * bulk.FEW + 2}


async def test_rows_that_are_copied_wake_those_who_wait_for_what_is_due(
    storage: Storage, copied: list[int]
) -> None:
    for queue in (QUEUE, "others"):
        await enqueue_one(storage, queue=queue)
    while await storage.jobs.wait_for_work(MINE | OTHERS, SHORT):
        pass
    later = timedelta(hours=1)
    await storage.jobs.enqueue(
        [new_job(), new_job(delay=later), new_job(queue="others", delay=later)]
    )
    assert copied[-1] == 3
    with anyio.fail_after(20):
        assert await storage.jobs.wait_for_work(MINE | OTHERS, LONG) == Wake(queues=MINE)


async def test_a_call_repeated_stores_nothing_more(storage: Storage, copied: list[int]) -> None:
    await enqueue_one(storage)
    requests = [new_job() for _ in range(3)]
    first = await storage.jobs.enqueue(requests)
    assert await storage.jobs.enqueue(requests) == first
    assert copied[-2:] == [3, 3]
    assert await counters(storage) == {"enqueued": 4}


async def test_an_id_that_somebody_is_storing_is_not_waited_for_long(
    storage: Storage, url: str, copied: list[int]
) -> None:
    await enqueue_one(storage)
    one, other = new_job(), new_job()
    async with raw(url) as connection, connection.transaction():
        await storage.jobs.enqueue([other], connection=connection)
        with pytest.raises(Locked):
            await storage.jobs.enqueue([one, other])
        assert await storage.jobs.get([one.id, other.id]) == {}
    await storage.jobs.enqueue([one, other])
    assert await counters(storage) == {"enqueued": 3}
