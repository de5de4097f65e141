"""The report of a store on itself."""

import secrets
from datetime import timedelta

import pytest

from forge_jobs.storage.protocols import Storage, StoreReport
from tests.support.factories import enqueue_one, new_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_a_store_knows_its_size_and_its_schema(storage: Storage) -> None:
    await enqueue_one(storage)
    report = await storage.report()
    assert isinstance(report, StoreReport)
    assert report.size_bytes
    assert report.schema_version
    for amount in (report.wal_bytes, report.dead_rows, report.memory_bytes, report.replicas):
        assert amount is None or amount >= 0
    assert report.oldest_transaction is None or report.oldest_transaction >= timedelta(0)


async def test_what_is_stored_makes_the_store_larger(storage: Storage) -> None:
    await enqueue_one(storage)
    before = await stored(storage)

    async def grown() -> bool:
        # No database packs these. Pages that earlier tests left empty are filled first.
        payloads = [f'"{secrets.token_hex(10_000)}"' for _ in range(200)]
        await storage.jobs.enqueue([new_job(payload=payload) for payload in payloads])
        return await stored(storage) > before

    await wait_until(grown, description="the store is larger")


async def stored(storage: Storage) -> int:
    report = await storage.report()
    return (report.size_bytes or 0) + (report.memory_bytes or 0)
