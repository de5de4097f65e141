"""The bundle of the four views."""

from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.jobs import After
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.factories import (
    claim_one,
    done,
    enqueue_one,
    finish,
    get_job,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio


async def test_the_four_views_are_of_one_store(storage: Storage) -> None:
    views = (storage.jobs, storage.procs, storage.config, storage.cron)
    assert len({view.store_id for view in views}) == 1
    assert storage.jobs.store_id


async def test_a_reopened_bundle_is_of_the_same_store_and_lives_on_alone(
    storage: Storage,
) -> None:
    job_id = await enqueue_one(storage)
    async with await storage.reopen() as other:
        assert other is not storage
        assert other.jobs.store_id == storage.jobs.store_id
        lease = await register(other)
        claimed = await claim_one(other, lease)
    assert claimed.claim.job_id == job_id
    assert await finish(storage, claimed, done())


async def test_a_bundle_outlives_the_one_it_was_opened_from(
    tmp_path: Path, storage: Storage
) -> None:
    first = await storage.reopen()
    second = await first.reopen()
    await first.aclose()
    async with second:
        job_id = await enqueue_one(second)
    assert (await get_job(storage, job_id)).id == job_id


async def test_closing_twice_is_fine(storage: Storage) -> None:
    other = await storage.reopen()
    await other.aclose()
    await other.aclose()


@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_what_was_stored_is_there_after_closing_and_opening(
    backend: str, tmp_path: Path, clock: ManualClock
) -> None:
    async with BACKENDS[backend](tmp_path, clock) as first:
        job_id = await enqueue_one(first, payload='{"n": 1}')
        store_id = first.jobs.store_id
    async with BACKENDS[backend](tmp_path, clock) as second:
        assert second.jobs.store_id == store_id
        assert (await get_job(second, job_id)).payload == '{"n": 1}'


@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_views_of_different_stores_are_refused(
    backend: str, tmp_path: Path, clock: ManualClock, storage: Storage
) -> None:
    folder = tmp_path / "another"
    folder.mkdir()

    async def nothing() -> None: ...

    async with BACKENDS[backend](folder, clock) as other:
        with pytest.raises(InvalidInput) as refused:
            Storage(
                storage.jobs,
                storage.procs,
                other.config,
                storage.cron,
                reopen=storage.reopen,
                close=nothing,
                name="mixed",
            )
    assert refused.value.field == "storage"


async def test_a_bundle_is_shown_without_its_address(storage: Storage, tmp_path: Path) -> None:
    assert storage.name in repr(storage)
    assert str(tmp_path) not in repr(storage)


async def test_a_step_may_cross_the_views_of_two_bundles(storage: Storage) -> None:
    async with await storage.reopen() as other:
        lease = await register(other)
        parent = await enqueue_one(storage)
        child = await enqueue_one(other, after=(After(parent),))
        await run_one(storage, lease, done())
        news = await other.jobs.handovers(10)
        assert await storage.jobs.deliver([Delivery(each, "settle") for each in news]) == 1
        assert (await claim_one(other, lease)).claim.job_id == child
