"""Checkpoints of a handler, read back by the next run."""

from dataclasses import dataclass

import pytest

from forge_jobs.errors import Conflict, InvalidInput, UndecodablePayload
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.transitions import Finalization
from forge_jobs.privacy.encryption import Encryption, is_encrypted
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


@dataclass
class Place:
    page: int
    done: list[str]


@pytest.mark.parametrize("is_encrypted_one", [False, True])
async def test_a_retry_goes_on_where_the_last_run_stopped(
    storage: Storage, is_encrypted_one: bool
) -> None:
    encryption = Encryption([Encryption.new_key()]) if is_encrypted_one else None
    handlers = HandlerRegistry(encryption=encryption)
    pages: list[int] = []

    @handlers.job("import", max_attempts=4, retry=lambda attempt, error: 0)
    async def read_pages(ctx: JobContext) -> list[str]:
        place = await ctx.load_checkpoint(Place, Place(0, []))
        for page in range(place.page, 6):
            pages.append(page)
            place = Place(page + 1, [*place.done, f"page {page}"])
            await ctx.checkpoint(place)
            if page in {1, 3}:
                raise OSError("the upstream broke off")
        return place.done

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(read_pages.request())
        assert await handle.result(outcome.job_id, timeout=50) == [f"page {n}" for n in range(6)]
    assert pages == [0, 1, 2, 3, 4, 5]
    stored = await storage.jobs.checkpoint(outcome.job_id)
    assert stored is not None
    assert is_encrypted(stored) is is_encrypted_one


async def test_a_thread_has_checkpoints_too(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("count")
    def count(ctx: JobContext) -> list[object]:
        seen = [ctx.sync.load_checkpoint(), ctx.sync.load_checkpoint(default="none")]
        ctx.sync.checkpoint({"n": 1})
        return [*seen, ctx.sync.load_checkpoint()]

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(count.request())
        assert await handle.result(outcome.job_id, timeout=50) == [None, "none", {"n": 1}]


async def test_what_cannot_be_kept_is_refused_by_name(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("odd")
    async def odd(ctx: JobContext) -> None:
        with pytest.raises(InvalidInput, match="checkpoint: "):
            await ctx.checkpoint(object())
        with pytest.raises(InvalidInput, match="checkpoint: takes"):
            await ctx.checkpoint("x" * 2_000_000)
        await ctx.checkpoint({"page": "one", "done": []})
        with pytest.raises(UndecodablePayload, match=r"checkpoint\.page"):
            await ctx.load_checkpoint(Place)

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(odd.request())
        assert (await ended(storage, outcome.job_id)).status is JobStatus.DONE


async def test_a_run_that_lost_its_claim_saves_nothing(storage: Storage) -> None:
    handlers = HandlerRegistry()
    refusals: list[str] = []

    @handlers.job("slow")
    async def slow(ctx: JobContext) -> None:
        [job] = (await storage.jobs.get([ctx.job_id])).values()
        claim = Claim(job.queue, job.id, job.token, job.host_id)
        # A beat that knew of the end would stop the handler before the call.
        faults.hold_replies("heartbeat")
        await storage.jobs.finalize([Finalization(claim, dead())])
        with pytest.raises(Conflict) as refused:
            await ctx.checkpoint(1)
        refusals.append(str(refused.value))
        faults.let_go("heartbeat")

    faults = Faults()
    async with a_runtime(faulty(storage, faults), handlers).start() as handle:
        await handle.enqueue(slow.request())
        await wait_until(lambda: refusals, description="the handler was refused")
    assert "was lost" in refusals[0]
