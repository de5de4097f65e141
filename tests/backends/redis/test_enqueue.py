"""Enqueuing in several steps, by callers that are stopped, or die, between any two of them."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobFilter, JobStatus, NewJob
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.database import Database
from tests.support.factories import (
    QUEUE,
    SECOND,
    done,
    enqueue_one,
    get_job,
    new_job,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

CHILDREN = "children"
FROZEN_S = 300
"""Longer than anything is kept for a caller that is under way."""


class Died(Exception):
    """The process is gone."""


class Script:
    """Does something once, just before the store sends one of its scripts."""

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
            *,
            also: Collection[str] = (),
        ) -> Any:
            if name in self._before:
                await self._before.pop(name)()
            if requests:
                self.sent.append(name)
            self.database = database
            return await run(database, name, requests, answer, also=also)

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
    """Deliver all news there are."""
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


async def test_a_caller_frozen_before_both_are_stored_leaves_no_child_that_waits_for_ever(
    storage: Storage, clock: ManualClock, script: Script
) -> None:
    parent, child = family()

    async def freeze() -> None:
        clock.advance(FROZEN_S)
        # Its time to live, which the server's own clock measures, has ended.
        key = f"{script.database.keys.queue(QUEUE)}:kids:{parent.id}"
        assert await script.database.commands([("DEL", key)]) == [1]

    script.before("enqueue", freeze)
    await storage.jobs.enqueue([parent, child])
    await run_one(storage, await register(storage), done())
    await tell(storage)
    assert (await get_job(storage, child.id)).status == JobStatus.PENDING


async def test_a_caller_frozen_after_its_locators_stores_no_job_that_is_not_found(
    storage: Storage, clock: ManualClock, script: Script
) -> None:
    """While it is frozen a sweep takes the locators, as nothing came of them."""

    async def freeze() -> None:
        clock.advance(FROZEN_S)
        while "forget" not in script.sent and script.sent.count("overdue") < 20:
            await storage.jobs.cleanup(1_000)

    script.before("enqueue", freeze)
    job_id = await enqueue_one(storage)
    assert (await get_job(storage, job_id)).queue == QUEUE


def family() -> tuple[NewJob, NewJob]:
    """A parent and a child in another queue."""
    parent = new_job()
    return parent, new_job(queue=CHILDREN, after=(After(parent.id),))


@pytest.mark.parametrize("step", ["locate", "plan", "register", "enqueue"])
async def test_a_caller_that_dies_leaves_nothing_and_may_repeat(
    storage: Storage, script: Script, step: str
) -> None:
    parent, child = family()
    script.before(step, die)
    # On one server there is no step "locate".
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
    """In a cluster, where each queue is a step of its own."""
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
