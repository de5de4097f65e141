"""Enqueuing in several steps, by callers that are stopped, or die, between any two of them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.jobs import enqueue
from tests.support.factories import (
    QUEUE,
    SECOND,
    done,
    enqueue_one,
    get_job,
    new_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

CHILDREN = "children"
ROUNDS = 20
FROZEN_S = 300
"""Longer than anything is kept for a caller that is under way."""


class Died(Exception):
    """The process is gone."""


class Script:
    """Calls a function once, just before the store sends a script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._before: dict[str, Callable[[], Awaitable[None]]] = {}
        self.sent: list[str] = []
        self.database: Database
        run = Database.run

        async def watched(
            database: Database,
            name: str,
            requests: Mapping[str, object],
            answer: Any,
            **others: Any,
        ) -> Any:
            if name in self._before:
                await self._before.pop(name)()
            if requests:
                self.sent.append(name)
            self.database = database
            return await run(database, name, requests, answer, **others)

        monkeypatch.setattr(Database, "run", watched)

    def before(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        self._before[name] = act


@pytest.fixture
def storage(either: Storage) -> Storage:
    return either


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


async def die() -> None:
    raise Died


async def tell(storage: Storage) -> None:
    """Deliver all handovers."""
    news = await storage.jobs.handovers(100)
    await storage.jobs.deliver([Delivery(each, "settle") for each in news])


async def test_a_caller_frozen_while_the_parent_ends_leaves_no_child_that_waits_for_ever(
    storage: Storage, clock: ManualClock, script: Script
) -> None:
    lease = await register(storage)
    parent = await enqueue_one(storage)

    async def freeze() -> None:
        await run_one(storage, lease, done())
        clock.advance(FROZEN_S)
        await tell(storage)

    script.before("enqueue", freeze)
    child = await enqueue_one(storage, queue=CHILDREN, after=(After(parent),))
    await tell(storage)
    assert (await get_job(storage, child)).status == JobStatus.PENDING


async def test_two_producers_that_race_over_a_parent_leave_no_child_that_waits_for_ever(
    storage: Storage, script: Script
) -> None:
    """Another producer stores the parent alone, after this one has seen that there is none."""
    parent, child = family()

    async def be_faster() -> None:
        await storage.jobs.enqueue([parent])

    script.before("enqueue", be_faster)
    await storage.jobs.enqueue([parent, child])
    await run_one(storage, await register(storage), done())
    await tell(storage)
    assert (await get_job(storage, child.id)).status == JobStatus.PENDING


async def test_a_parent_that_comes_and_ends_meanwhile_leaves_no_child_that_waits_for_ever(
    storage: Storage, script: Script
) -> None:
    lease = await register(storage)
    parent, child = family()

    async def be_faster() -> None:
        await storage.jobs.enqueue([parent])
        await run_one(storage, lease, done())
        await tell(storage)

    script.before("enqueue", be_faster)
    await storage.jobs.enqueue([parent, child])
    await tell(storage)
    assert (await get_job(storage, child.id)).status == JobStatus.PENDING


@pytest.mark.parametrize("step", ["plan", "parents", "enqueue", "link"])
async def test_a_parent_that_is_removed_meanwhile_is_missing_or_tells_its_child(
    storage: Storage, script: Script, step: str
) -> None:
    parent = await enqueue_one(storage)

    async def remove() -> None:
        await storage.jobs.delete(only(parent))

    script.before(step, remove)
    child = new_job(queue=CHILDREN, after=(After(parent),))
    with suppress(NotFound):
        await storage.jobs.enqueue([child])
        news = await storage.jobs.handovers(10)
        assert [each.parent_status for each in news] == ([JobStatus.CANCELLED] if news else [])
        await storage.jobs.deliver([Delivery(each, "cancel") for each in news])
        expected = JobStatus.BLOCKED if "link" not in script.sent and not news else None
        status = (await get_job(storage, child.id)).status
        assert status == (expected or JobStatus.CANCELLED)
        return
    assert await stored(storage) == []


@pytest.mark.parametrize("repeats", [False, True])
async def test_a_caller_that_dies_before_it_links_may_repeat(
    storage: Storage, script: Script, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    """On one server too, as with more queues than one step takes."""
    monkeypatch.setattr(enqueue, "BASES_AT_ONCE", 1)
    parent, child = family()
    script.before("link", die)
    with suppress(Died):
        await storage.jobs.enqueue([parent, child])
    if repeats:
        await run_one(storage, await register(storage), done())
    await storage.jobs.enqueue([parent, child])
    if not repeats:
        await run_one(storage, await register(storage), done())
    await tell(storage)
    assert (await get_job(storage, child.id)).status == JobStatus.PENDING


@pytest.mark.parametrize("step", ["enqueue", "link"])
async def test_five_hundred_children_of_a_call_that_died_hold_up_no_other_child(
    storage: Storage, script: Script, step: str
) -> None:
    first, second = [await enqueue_one(storage) for _ in range(2)]
    left = [new_job(queue=CHILDREN, after=(After(first),)) for _ in range(500)]
    script.before(step, die)
    with suppress(Died):
        await storage.jobs.enqueue(left)
    other = await enqueue_one(storage, queue=CHILDREN, after=(After(second),))
    lease = await register(storage)
    assert [await run_one(storage, lease, done()) for _ in range(2)] == [first, second]
    await hand_over_once(storage.jobs)
    assert (await get_job(storage, other)).status == JobStatus.PENDING


async def test_many_producers_that_race_over_their_parents_strand_no_child(
    storage: Storage,
) -> None:
    lease = await register(storage, queues=(QUEUE, CHILDREN))
    children: list[JobId] = []
    for _ in range(ROUNDS):
        race = Race(storage, lease)
        await asyncio.gather(
            race.stores_the_parent(),
            *(race.stores_both(child) for child in race.children),
            *(race.stores_the_child(child) for child in race.children),
            race.ends_the_parent(),
        )
        children += (child.id for child in race.children)
    await tell(storage)
    found = await storage.jobs.get(children)
    assert {job.status for job in found.values()} == {JobStatus.PENDING}
    assert len(found) == len(children)


class Race:
    """Producers of one family at the same time, and the worker that runs the parent."""

    def __init__(self, storage: Storage, lease: PodLease) -> None:
        self._storage = storage
        self._lease = lease
        self._parent = new_job()
        self._is_there = asyncio.Event()
        after = (After(self._parent.id),)
        self.children = [new_job(queue=CHILDREN, after=after) for _ in range(3)]

    async def stores_the_parent(self) -> None:
        await self._storage.jobs.enqueue([self._parent])
        self._is_there.set()

    async def stores_both(self, child: NewJob) -> None:
        await self._storage.jobs.enqueue([self._parent, child])
        self._is_there.set()

    async def stores_the_child(self, child: NewJob) -> None:
        with suppress(NotFound):
            await self._storage.jobs.enqueue([child])
            return
        await self._is_there.wait()
        await self._storage.jobs.enqueue([child])

    async def ends_the_parent(self) -> None:
        await self._is_there.wait()
        await run_one(self._storage, self._lease, done())
        await tell(self._storage)


async def test_servers_whose_clocks_differ_by_a_minute_store_a_family(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 60 * 1_000_000
    arguments = Database._arguments

    def of_its_server(database: Database, group: Any, also: Collection[str]) -> Any:
        made = list(arguments(database, group, also))
        if all(CHILDREN in base for base, _ in group):
            made[1 + len(group) + len(also)] = str(int(database.clock_argument) + ahead)
        return tuple(made)

    monkeypatch.setattr(Database, "_arguments", of_its_server)
    parent, child = family()
    await storage.jobs.enqueue([parent, child])
    await run_one(storage, await register(storage), done())
    # In a cluster the first one counts as of a removed child, and is followed by another.
    await tell(storage)
    await tell(storage)
    assert (await get_job(storage, child.id)).status == JobStatus.PENDING


async def test_a_caller_frozen_after_its_locators_stores_no_job_that_is_not_found(
    storage: Storage, clock: ManualClock, script: Script
) -> None:
    """While the caller is frozen, a sweep removes the locators, which led to no job."""

    async def freeze() -> None:
        clock.advance(FROZEN_S)
        for _ in range(20):
            await storage.jobs.sweep(1_000)

    script.before("enqueue", freeze)
    job_id = await enqueue_one(storage)
    assert (await get_job(storage, job_id)).queue == QUEUE


def family() -> tuple[NewJob, NewJob]:
    """A parent and a child in another queue."""
    parent = new_job()
    return parent, new_job(queue=CHILDREN, after=(After(parent.id),))


@pytest.mark.parametrize("step", ["locate", "plan", "parents", "enqueue"])
async def test_a_caller_that_dies_leaves_nothing_and_may_repeat(
    storage: Storage, script: Script, step: str
) -> None:
    parent, child = family()
    script.before(step, die)
    # On one server there are no steps "locate" and "parents".
    try:
        await storage.jobs.enqueue([parent, child])
    except Died:
        assert await stored(storage) == []
        await storage.jobs.enqueue([parent, child])
    assert sorted(await stored(storage)) == sorted([parent.id, child.id])
    await run_one(storage, await register(storage), done())
    await tell(storage)
    assert (await get_job(storage, child.id)).status == JobStatus.PENDING


async def test_a_caller_that_dies_halfway_leaves_no_child_without_its_parent(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster, where each queue is a separate step."""
    parent = new_job()
    children = [new_job(queue=f"child-{n}", after=(After(parent.id),)) for n in range(5)]
    run = Database.run
    steps = 0

    async def one_queue_only(
        database: Database, name: str, requests: Mapping[str, object], answer: Any, **others: Any
    ) -> Any:
        nonlocal steps
        if name == "enqueue" and database.is_cluster:
            steps += 1
            if steps == 1:
                last = dict([list(requests.items())[-1]])
                await run(database, name, last, answer, **others)
                raise Died
        return await run(database, name, requests, answer, **others)

    monkeypatch.setattr(Database, "run", one_queue_only)
    try:
        await storage.jobs.enqueue([parent, *children])
    except Died:
        assert await stored(storage) == [parent.id]
        await storage.jobs.enqueue([parent, *children])
    assert len(await stored(storage)) == 6
    clock.advance(SECOND.total_seconds())
    await run_one(storage, await register(storage), done())
    await tell(storage)
    for child in children:
        assert (await get_job(storage, child.id)).status == JobStatus.PENDING


async def stored(storage: Storage) -> list[JobId]:
    return [line.id for line in (await storage.jobs.list(JobFilter(), limit=100)).jobs]


async def test_queues_whose_jobs_wait_for_each_others_are_stored_together(
    storage: Storage,
) -> None:
    first = new_job(id=new_job_id(), queue="a")
    second = new_job(queue="b", after=(After(first.id),))
    third = new_job(queue="a", after=(After(second.id),))
    await storage.jobs.enqueue([first, second, third])
    lease = await register(storage, queues=("a", "b"))
    for job, queue in ((first, "a"), (second, "b"), (third, "a")):
        assert await run_one(storage, lease, done(), queue=queue) == job.id
        await tell(storage)


async def test_jobs_of_one_batch_that_differ_in_anything_keep_what_is_theirs(
    storage: Storage,
) -> None:
    now = await storage.cron.now()
    asked: list[dict[str, Any]] = [
        {},
        {"kind": "other"},
        {"payload": '{"other":1}'},
        {"priority": 1},
        {"run_at": now + 50 * SECOND},
        {"delay": 40 * SECOND},
        {"expires_at": now + 60 * SECOND},
        {"tags": ("a", "b")},
        {"schedule": "nightly"},
        {"max_attempts": 7},
        {"timeout": 30 * SECOND},
        {"keep_result": False},
        {"metadata": '{"a":"b"}'},
        {"trace": '{"c":"d"}'},
        {},
    ]
    together = [new_job(**each) for each in asked]
    await storage.jobs.enqueue(together)
    for request, each in zip(together, asked, strict=True):
        stored = await get_job(storage, request.id)
        alone = await get_job(storage, await enqueue_one(storage, **each))
        due_in = stored.due_at - stored.enqueued_at, alone.due_at - alone.enqueued_at
        assert "run_at" in each or due_in[0] == due_in[1]
        own = {"id": alone.id, "token": alone.token, "enqueued_at": alone.enqueued_at}
        assert msgspec.structs.replace(stored, **own, due_at=alone.due_at) == alone
