"""Groups and chains: members, the end of the whole, callbacks."""

import asyncio
from typing import Any

import pytest

from forge_jobs import Group, GroupState, Workflow, group_handlers
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.flows.plans import part_id
from forge_jobs.errors import Conflict, InvalidInput, JobDead, NotFound
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import GROUP_KIND
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, only, register, run_one
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


def squares(encryption: Encryption | None = None) -> HandlerRegistry:
    """Handlers that square a number, and that look at members."""
    handlers = HandlerRegistry(encryption=encryption)
    handlers.include(group_handlers(encryption=encryption))

    @handlers.job("square", max_attempts=1)
    async def square(number: int) -> int:
        if number < 0:
            raise ValueError("a negative number")
        return number * number

    @handlers.job("sum")
    async def add_up(ctx: JobContext) -> int:
        return sum(each.result(int) for each in await ctx.parents())

    @handlers.job("list")
    async def list_them(ctx: JobContext) -> list[int | str]:
        return [
            each.result(int) if each.status is JobStatus.DONE else str(each.status)
            for each in await ctx.parents()
        ]

    return handlers


def of(handlers: HandlerRegistry, kind: str) -> Handler[..., Any]:
    handler = handlers.get(kind)
    assert handler is not None
    return handler


def a_group(handlers: HandlerRegistry, numbers: list[int], **fields: object) -> Group:
    square, list_them = of(handlers, "square"), of(handlers, "list")
    return Group(
        [square.request(each) for each in numbers],
        on_settled=list_them.request(),
        on_success=of(handlers, "sum").request(),
        on_failure=list_them.request(),
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_the_callbacks_of_a_success_read_the_members_in_order(
    storage: Storage, is_encrypted: bool
) -> None:
    handlers = squares(Encryption([Encryption.new_key()]) if is_encrypted else None)
    async with a_runtime(storage, handlers, 3).start() as handle:
        group = await handle.enqueue_group(a_group(handlers, [5, 1, 4]))
        back = group.callbacks
        assert await handle.result(back["on_settled"].job_id, timeout=50) == [25, 1, 16]
        assert await handle.result(back["on_success"].job_id, timeout=50) == 42
        assert await handle.result(group.id, timeout=50) == {"done": 3}
        unneeded = await ended(storage, back["on_failure"].job_id)
        assert (unneeded.status, unneeded.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
        state = await handle.client.group(group.id)
    assert state == GroupState(id=group.id, waiting=0, done=3, dead=0, cancelled=0)
    assert (state.total, state.failed, state.is_settled) == (3, 0, True)


async def test_one_member_that_fails_fails_the_group_when_all_have_ended(
    storage: Storage,
) -> None:
    handlers = squares()
    async with a_runtime(storage, handlers, 3).start() as handle:
        group = await handle.enqueue_group(a_group(handlers, [2, -1, 3]))
        back = group.callbacks
        for name in ("on_settled", "on_failure"):
            assert await handle.result(back[name].job_id, timeout=50) == [4, "dead", 9]
        with pytest.raises(JobDead, match="1 of 3 jobs of the group ended without success"):
            await handle.result(group.id, timeout=50)
        unneeded = await ended(storage, back["on_success"].job_id)
        assert (unneeded.status, unneeded.cause) == (JobStatus.CANCELLED, Cause.PARENT_FAILED)
        state = await handle.client.group(group.id)
    assert state == GroupState(id=group.id, waiting=0, done=2, dead=1, cancelled=0)


async def test_a_group_may_be_a_parent_and_a_member(storage: Storage) -> None:
    handlers = squares()
    square, add_up = of(handlers, "square"), of(handlers, "sum")
    async with a_runtime(storage, handlers, 3).start() as handle:
        first = await handle.enqueue_group(Group([square.request(1), square.request(2)]))
        total = await handle.enqueue(add_up.request(), after=[first.id])
        assert await handle.result(total.job_id, timeout=50) == 5
        # Each step of a chain reads the one before.
        steps = [square.request(3), add_up.request(), add_up.request()]
        chain = await handle.client.enqueue_chain(steps)
        assert await handle.result(chain[-1].job_id, timeout=50) == 9


async def test_a_cancel_of_the_whole_cancels_members_and_the_group_settles(
    storage: Storage,
) -> None:
    handlers = squares()
    started = asyncio.Event()

    @handlers.job("endless")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    square, list_them = of(handlers, "square"), of(handlers, "list")
    async with a_runtime(storage, handlers, 2).start() as handle:
        members = [
            endless.request(),
            *(
                square.request(
                    1,
                )
                for _ in range(2)
            ),
        ]
        members[1:] = [each.options(delay=3600) for each in members[1:]]
        group = await handle.enqueue_group(Group(members, on_settled=list_them.request()))
        await asyncio.wait_for(started.wait(), 50)
        totals = await handle.client.cancel_group(group.id)
        assert (totals.changed, totals.requested) == (2, 1)
        assert (await ended(storage, group.id)).status is JobStatus.DEAD
        assert (await handle.client.group(group.id)).cancelled == 3
        settled = group.callbacks["on_settled"].job_id
        assert await handle.result(settled, timeout=50) == ["cancelled"] * 3


async def test_what_is_no_group_has_no_state_and_is_not_cancelled(storage: Storage) -> None:
    client = JobClient(storage)
    plain = EnqueueRequest("tests.noop")
    group = await client.enqueue_group(Group([plain], on_settled=plain))
    callback = group.callbacks["on_settled"].job_id
    workflow = Workflow("nightly")
    workflow.step("only", plain)
    nightly = await client.enqueue_workflow(workflow)
    for other in (callback, nightly.id, group.members[0].job_id):
        for call in (client.cancel_group, client.group):
            with pytest.raises(NotFound, match="there is no group"):
                await call(other)
    assert (await storage.jobs.counts())["default"].by_status.get(JobStatus.CANCELLED, 0) == 0
    await client.aclose()


async def test_the_state_outlives_the_members_until_the_group_settles(storage: Storage) -> None:
    lease = await register(storage)
    client = JobClient(storage)
    requests = [EnqueueRequest("tests.noop", max_attempts=1) for _ in range(3)]
    group = await client.enqueue_group(Group(requests))
    ids = [each.job_id for each in group.members]
    assert await run_one(storage, lease, done()) == ids[0]
    assert await run_one(storage, lease, dead()) == ids[1]
    await hand_over_once(storage.jobs)
    await storage.jobs.delete(only(*ids[:2]))
    state = await client.group(group.id)
    assert (state.waiting, state.done, state.dead, state.total) == (1, 1, 1, 3)
    await client.aclose()


async def test_a_repeat_completes_what_a_caller_left_that_died(storage: Storage) -> None:
    group_id = new_job_id()
    requests = [EnqueueRequest("tests.noop", {"number": each}) for each in range(450)]
    group = Group(requests, on_settled=EnqueueRequest("tests.noop"), id=group_id)
    for stored in range(3):
        dying = _Dying(storage, stored)
        with pytest.raises(ConnectionError):
            await dying.enqueue_group(group)
        # The group is not stored before its members.
        with pytest.raises(NotFound, match="not stored yet"):
            await dying.group(group_id)
        with pytest.raises(NotFound, match="not stored yet"):
            await dying.cancel_group(group_id)
        await dying.aclose()
    client = JobClient(storage)
    first = await client.enqueue_group(group)
    assert await client.enqueue_group(group) == first
    assert (await client.group(group_id)).waiting == 450
    found = (await storage.jobs.counts())["default"].by_status
    assert (found[JobStatus.PENDING], found[JobStatus.BLOCKED]) == (450, 2)
    assert sum(found.values()) == 452
    totals = await client.cancel_group(group_id)
    assert totals.changed == 450
    while await hand_over_once(storage.jobs):
        pass
    assert await client.group(group_id) == GroupState(
        id=group_id, waiting=0, done=0, dead=0, cancelled=450
    )
    with pytest.raises(Conflict):
        await client.enqueue_group(Group(requests[:-1], id=group_id))
    await client.aclose()


class _Dying(JobClient):
    """A client whose process ends after so many calls of the store."""

    def __init__(self, storage: Storage, calls: int) -> None:
        super().__init__(storage)
        self._left = calls

    async def enqueue_many(self, *args: object, **options: object) -> list[Any]:
        if not self._left:
            raise ConnectionError("the process ended here")
        self._left -= 1
        return await super().enqueue_many(*args, **options)  # type: ignore[arg-type]


async def test_a_member_whose_key_another_job_has_is_that_job(storage: Storage) -> None:
    client = JobClient(storage)
    plain = EnqueueRequest("tests.noop")
    holder = await client.enqueue(plain, unique_key="k")
    few = await client.enqueue_group(Group([plain, plain.options(unique_key="k")]))
    many = Group([plain.options(unique_key="k"), *[plain] * 250])
    large = await client.enqueue_group(many)
    for group in (few, large):
        assert holder.job_id in (await storage.jobs.parents([group.id]))[group.id]
    await client.aclose()


async def test_what_is_no_group_is_refused_and_nothing_is_stored(storage: Storage) -> None:
    client = JobClient(storage)
    plain = EnqueueRequest("tests.noop")
    with pytest.raises(InvalidInput, match="has 0 members"):
        await client.enqueue_group(Group([]))
    with pytest.raises(InvalidInput, match="give Group"):
        await client.enqueue_group([plain])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="priority"):
        await client.enqueue_group(Group([plain] * 250 + [plain.options(priority=1_000)]))
    with pytest.raises(InvalidInput, match="has 10001 members"):
        await client.enqueue_group(Group([plain] * 10_001))
    assert (await storage.jobs.counts()) == {}
    with pytest.raises(NotFound, match="there is no group"):
        await client.group(new_job_id())
    await client.aclose()


def test_ids_of_parts_sort_by_number_and_differ_between_wholes() -> None:
    first, second = new_job_id(), new_job_id()
    ids = [part_id(first, number) for number in range(10_003)]
    assert ids == sorted(set(ids))
    assert not set(ids) & {part_id(second, number) for number in range(10_003)}
    assert part_id(first, 7) == ids[7] != JobId(first)
    assert GROUP_KIND == "forge.group"


@pytest.mark.long
async def test_a_group_of_ten_thousand_is_one_read(storage: Storage) -> None:
    client = JobClient(storage)
    members = [EnqueueRequest("tests.noop", {"number": each}) for each in range(10_000)]
    group = await client.enqueue_group(Group(members, on_settled=EnqueueRequest("tests.noop")))
    assert (await client.group(group.id)).waiting == 10_000
    assert (await client.cancel_group(group.id)).changed == 10_000
    told = 0
    while count := await hand_over_once(storage.jobs):
        told += count
    assert told == 10_000
    state = await client.group(group.id)
    assert (state.cancelled, state.is_settled) == (10_000, True)
    found = await storage.jobs.get([group.id])
    assert found[group.id].status is JobStatus.PENDING
    await client.aclose()
