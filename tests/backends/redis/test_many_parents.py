"""Jobs after more parents than one step links, stored by callers that die between two steps."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After, JobStatus, NewJob
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.jobs import children
from tests.backends.redis.test_enqueue import CHILDREN, Died, Script, die
from tests.support.factories import claim, done, enqueue_one, get_job, new_job, register, run_one

pytestmark = pytest.mark.anyio

PARENTS = 7
STEPS = [2, *(pytest.param(step, marks=pytest.mark.long) for step in (1, 3, 4))]


@pytest.fixture
def storage(either: Storage) -> Storage:
    return either


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Two parents in a step, where three hundred are the rule."""
    monkeypatch.setattr(children, "PARENTS_AT_ONCE", 2)
    monkeypatch.setattr(children, "MOST_PARENTS_OF_A_STEP", 3)
    return Script(monkeypatch)


async def a_family(storage: Storage) -> tuple[list[NewJob], NewJob]:
    parents = [new_job() for _ in range(PARENTS)]
    await storage.jobs.enqueue(parents)
    return parents, new_job(queue=CHILDREN, after=tuple(After(each.id) for each in parents))


def at_the(number: int, name: str, script: Script, act: Callable[[], Awaitable[None]]) -> None:
    """Act before the script is sent for so many times."""

    async def count() -> None:
        at_the(number - 1, name, script, act)

    script.before(name, act if number == 1 else count)


async def all_done(storage: Storage) -> None:
    lease = await register(storage, queues=["default", CHILDREN])
    assert await claim(storage, lease, queue=CHILDREN) == []
    for _ in range(PARENTS):
        await run_one(storage, lease, done())
        await hand_over_once(storage.jobs)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_late", [False, True])
async def test_the_sweep_settles_what_a_caller_has_left_that_died_between_links(
    storage: Storage, clock: ManualClock, script: Script, step: int, is_late: bool
) -> None:
    _, child = await a_family(storage)
    at_the(step, "link", script, die)
    with suppress(Died):
        await storage.jobs.enqueue([child])
        pytest.fail("the call came to its end")
    assert (await get_job(storage, child.id)).status is JobStatus.BLOCKED
    if is_late:
        await all_done(storage)
        assert (await get_job(storage, child.id)).status is JobStatus.BLOCKED
    await storage.jobs.sweep(100)
    clock.advance(61)
    swept = await storage.jobs.sweep(100)
    assert {one.job_id for one in swept.notified} == {child.id}
    if is_late:
        await hand_over_once(storage.jobs)
    else:
        await all_done(storage)
    assert (await get_job(storage, child.id)).status is JobStatus.PENDING
    assert await storage.jobs.handovers(10) == []


@pytest.mark.parametrize("step", STEPS)
async def test_a_repeat_links_what_a_caller_has_left_that_died_between_links(
    storage: Storage, script: Script, step: int
) -> None:
    _, child = await a_family(storage)
    at_the(step, "link", script, die)
    with suppress(Died):
        await storage.jobs.enqueue([child])
        pytest.fail("the call came to its end")
    [outcome] = await storage.jobs.enqueue([child])
    assert (outcome.job_id, outcome.deduplicated) == (child.id, False)
    await all_done(storage)
    assert (await get_job(storage, child.id)).status is JobStatus.PENDING


async def test_parents_that_end_between_two_links_are_heard_of(
    storage: Storage, script: Script
) -> None:
    _, child = await a_family(storage)

    async def end_all() -> None:
        await all_done(storage)

    at_the(2, "link", script, end_all)
    await storage.jobs.enqueue([child])
    await hand_over_once(storage.jobs)
    assert (await get_job(storage, child.id)).status is JobStatus.PENDING


async def test_a_parent_that_is_missing_among_many_is_an_error_and_nothing_is_stored(
    storage: Storage, script: Script
) -> None:
    parents, child = await a_family(storage)
    missing = new_job_id()
    request = new_job(queue=CHILDREN, after=(*child.after, After(missing)))
    with pytest.raises(NotFound, match=missing):
        await storage.jobs.enqueue([request])
    stored = (await storage.jobs.list(JobFilter(), limit=100)).jobs
    assert {job.id for job in stored} == {parent.id for parent in parents}


async def test_few_parents_are_linked_in_the_step_that_stores_the_job(
    storage: Storage, script: Script
) -> None:
    parents = [await enqueue_one(storage) for _ in range(3)]
    script.sent.clear()
    await enqueue_one(storage, after=tuple(After(each) for each in parents))
    if not script.database.is_cluster:
        assert script.sent == ["plan", "enqueue"]
