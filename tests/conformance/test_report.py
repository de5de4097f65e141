"""The report of a store on itself."""

from datetime import timedelta

import pytest

from forge_jobs.storage.protocols import Storage, StoreReport
from tests.support.factories import enqueue_one, new_job

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
    before = await storage.report()
    payload = '"' + "x" * 20_000 + '"'
    await storage.jobs.enqueue([new_job(payload=payload) for _ in range(200)])
    after = await storage.report()
    sizes = [
        (each.size_bytes or 0) + (each.wal_bytes or 0) + (each.memory_bytes or 0)
        for each in (before, after)
    ]
    assert sizes[1] > sizes[0]
