"""The counters of a run are summed by queue, and written by minute."""

from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.opening import open_storage
from tests.chaos.run import counts_of
from tests.support.factories import claim_one, done, enqueue_one, finish, register

pytestmark = pytest.mark.anyio


async def test_counters_are_summed_by_queue_and_written_by_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as storage:
        lease = await register(storage, queues=("a", "b"))
        for queue in ("a", "b"):
            await enqueue_one(storage, queue=queue)
        claimed = await claim_one(storage, lease, queue="a")
        first = clock.now()
        clock.advance(60)
        await finish(storage, claimed, done())
        await enqueue_one(storage, queue="b")

        totals = await counts_of(storage, ["a", "b"], tmp_path / "counters")

    assert totals == {"a": {"claimed": 1, "enqueued": 1, "succeeded": 1}, "b": {"enqueued": 2}}
    assert (tmp_path / "counters").read_text().splitlines() == [
        f"a {first:%H:%M} claimed 1",
        f"a {first:%H:%M} enqueued 1",
        f"a {clock.now():%H:%M} succeeded 1",
        f"b {first:%H:%M} enqueued 1",
        f"b {clock.now():%H:%M} enqueued 1",
    ]
