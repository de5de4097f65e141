"""JobStore.save_checkpoint and checkpoint: fences, and how long a checkpoint stays."""

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES
from forge_jobs.model.processes import PodLease
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    SECOND,
    claim_one,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    only,
    register,
    run_one,
)
from tests.support.keyed import MINUTE, keyed

pytestmark = pytest.mark.anyio


async def test_the_last_checkpoint_is_read_back(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert await storage.jobs.checkpoint(job_id) is None
    for text in ('{"page": 1}', "[]", '"\\u00e9 \\u4e16"', "null"):
        assert await storage.jobs.save_checkpoint(claimed.claim, text) is True
        assert await storage.jobs.checkpoint(job_id) == text


@pytest.mark.parametrize("mode", ["replace", "debounce", "keep-last"])
async def test_content_that_replaces_another_begins_without_its_checkpoint(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    await storage.jobs.enqueue([keyed("replace")])
    claimed = await claim_one(storage, lease)
    job_id = claimed.claim.job_id
    assert await storage.jobs.save_checkpoint(claimed.claim, "1") is True
    dropped = await storage.jobs.enqueue([keyed("keep", 2), keyed("replace", 2)])
    assert [each.job_id for each in dropped] == [job_id, job_id]
    await finish(storage, claimed, failed())
    assert await storage.jobs.checkpoint(job_id) == "1"
    [outcome] = await storage.jobs.enqueue([keyed(mode, 2)])
    assert (outcome.job_id, outcome.replaced) == (job_id, True)
    assert await storage.jobs.checkpoint(job_id) is None
    clock.advance(MINUTE)
    again = await claim_one(storage, await register(storage))
    assert again.payload == '{"n":2}'
    assert await storage.jobs.save_checkpoint(claimed.claim, "3") is False
    assert await storage.jobs.save_checkpoint(again.claim, "2") is True
    assert await storage.jobs.checkpoint(job_id) == "2"


async def test_a_job_that_is_not_stored_has_none(storage: Storage) -> None:
    assert await storage.jobs.checkpoint(new_job_id()) is None


async def test_the_largest_checkpoint_comes_back_whole(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    text = f'"{"x" * (MAX_PAYLOAD_BYTES - 2)}"'
    assert await storage.jobs.save_checkpoint(claimed.claim, text) is True
    assert await storage.jobs.checkpoint(job_id) == text


async def test_only_the_current_claim_saves(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    first = await claim_one(storage, lease)
    assert await storage.jobs.save_checkpoint(first.claim, "1") is True
    await finish(storage, first, failed())
    assert await storage.jobs.save_checkpoint(first.claim, "2") is False
    clock.advance(3600 * SECOND)
    lease = await register(storage)
    second = await claim_one(storage, lease)
    wrong = [
        first.claim,
        structs.replace(second.claim, token=second.claim.token + 1),
        structs.replace(second.claim, host_id=new_host_id()),
        structs.replace(second.claim, job_id=new_job_id()),
        structs.replace(second.claim, queue="another"),
    ]
    for claim in wrong:
        assert await storage.jobs.save_checkpoint(claim, "3") is False
    assert await storage.jobs.checkpoint(job_id) == "1"
    assert await storage.jobs.save_checkpoint(second.claim, "4") is True
    assert await storage.jobs.checkpoint(job_id) == "4"


async def test_a_checkpoint_outlives_the_end_and_a_requeue(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await storage.jobs.save_checkpoint(claimed.claim, "1")
    await finish(storage, claimed, dead())
    await storage.jobs.requeue(only(job_id))
    assert await storage.jobs.checkpoint(job_id) == "1"
    await run_one(storage, lease, done())
    assert await storage.jobs.checkpoint(job_id) == "1"


async def test_a_checkpoint_goes_with_the_job(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await storage.jobs.save_checkpoint(claimed.claim, "1")
    await finish(storage, claimed, done())
    await storage.jobs.delete(only(job_id))
    assert await storage.jobs.checkpoint(job_id) is None
    again = await enqueue_one(storage, id=job_id)
    assert again == job_id
    assert await storage.jobs.checkpoint(job_id) is None
