"""Groups of which members failed, and go on once what was wrong has been mended."""

import asyncio
from typing import Any

import pytest

from forge_jobs import EnqueuedGroup, EnqueueRequest, Group, GroupState, group_handlers
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, JobDead, NotFound
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import Storage
from tests.support.factories import only, spoil
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Mill:
    """Members that fail while something is broken, and callbacks that add up the results."""

    def __init__(self, encryption: Encryption | None = None) -> None:
        self.handlers = HandlerRegistry(encryption=encryption)
        self.handlers.include(group_handlers(encryption=encryption))
        self.broken = True
        self.go_on = asyncio.Event()
        self.ran: list[str] = []
        self.grind: Handler[..., Any] = self.handlers.register(self._grind, "grind", max_attempts=1)
        self.call: Handler[..., Any] = self.handlers.register(self._call, "call")

    async def _grind(self, number: int) -> int:
        if number == 0:
            await self.go_on.wait()
        if number < 0 and self.broken:
            raise ValueError("a stone in the mill")
        return number

    async def _call(self, ctx: JobContext, name: str) -> int:
        self.ran.append(name)
        found = await ctx.parents()
        return sum(each.result(int) for each in found if each.status is JobStatus.DONE)

    def group(self, *numbers: int) -> Group:
        return Group(
            [self.grind.request(each) for each in numbers],
            on_settled=self.call.request("on_settled"),
            # A callback may have an id of its own.
            on_success=self.call.request("on_success").options(id=new_job_id()),
            on_failure=self.grind.request(1),
        )


async def failed(storage: Storage, stored: EnqueuedGroup) -> None:
    """Wait until the group and what hangs on its success have ended."""
    assert (await ended(storage, stored.id)).status is JobStatus.DEAD
    on_success = await ended(storage, stored.callbacks["on_success"].job_id)
    assert on_success.status is JobStatus.CANCELLED


async def test_a_group_that_failed_is_resumed_and_succeeds(storage: Storage) -> None:
    mill = Mill(Encryption([Encryption.new_key()]))
    async with a_runtime(storage, mill.handlers, 3).start() as handle:
        stored = await handle.enqueue_group(mill.group(2, -1, 3))
        on_success = stored.callbacks["on_success"].job_id
        await failed(storage, stored)
        # Not mended yet: the group fails again.
        assert (await handle.client.resume_group(stored.id)).changed == 3
        await failed(storage, stored)
        with pytest.raises(JobDead, match="1 of 3 jobs"):
            await handle.result(stored.id, timeout=50)

        mill.broken = False
        assert (await handle.client.resume_group(stored.id)).changed == 3
        assert await handle.result(on_success, timeout=50) == 4
        assert await handle.result(stored.id, timeout=50) == {"done": 3}
        state = await handle.client.group(stored.id)
        assert state == GroupState(id=stored.id, waiting=0, done=3, dead=0, cancelled=0)
        with pytest.raises(Conflict, match="nothing to resume; requeue a callback"):
            await handle.client.resume_group(stored.id)
    # The others had run, and do not run again.
    assert sorted(mill.ran) == ["on_settled", "on_success"]


async def test_a_member_that_is_mended_while_others_run_counts_as_done(storage: Storage) -> None:
    mill = Mill()
    async with a_runtime(storage, mill.handlers, 2).start() as handle:
        stored = await handle.enqueue_group(mill.group(0, -1))
        mended = stored.members[1].job_id
        assert (await ended(storage, mended)).status is JobStatus.DEAD

        async def is_noted() -> bool:
            return (await handle.client.group(stored.id)).dead == 1

        await wait_until(is_noted, description="the group knows of the death")
        mill.broken = False
        assert (await handle.client.resume_group(stored.id)).changed == 1

        async def is_mended() -> bool:
            return (await handle.client.group(stored.id)).done == 1

        await wait_until(is_mended, description="the group knows of the success")
        mill.go_on.set()
        assert await handle.result(stored.id, timeout=50) == {"done": 2}
        on_success = stored.callbacks["on_success"].job_id
        assert await handle.result(on_success, timeout=50) == -1


async def test_a_group_without_its_failed_member_is_not_resumed(storage: Storage) -> None:
    mill = Mill()
    async with a_runtime(storage, mill.handlers).start() as handle:
        stored = await handle.enqueue_group(mill.group(-1))
        await failed(storage, stored)
        await storage.jobs.delete(only(stored.members[0].job_id))
        with pytest.raises(NotFound, match=r"1 members of group .* are gone"):
            await handle.client.resume_group(stored.id)
        for other in (new_job_id(), stored.callbacks["on_settled"].job_id):
            with pytest.raises(NotFound, match="there is no group"):
                await handle.client.resume_group(other)


async def test_the_blocking_client_resumes_groups(storage: Storage) -> None:
    client = JobClient(storage)
    stored = await client.enqueue_group(Mill().group(1, 2))
    await client.cancel_group(stored.id)
    totals = await asyncio.to_thread(client.sync.resume_group, stored.id)
    assert totals.changed == 2
    assert (await client.group(stored.id)).total == 2
    await client.aclose()


async def test_a_group_whose_payload_an_edit_has_spoilt_refuses_by_name(storage: Storage) -> None:
    async with JobClient(storage) as client:
        stored = await client.enqueue_group(Group([EnqueueRequest("grind")]))
        await spoil(storage, stored.id, '{"on_success": 7}')
        with pytest.raises(Conflict, match=r"payload of group .* cannot be read"):
            await client.resume_group(stored.id)
        assert (await client.cancel_group(stored.id)).changed == 1
