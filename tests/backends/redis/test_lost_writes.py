"""A slot of a Redis store loses its last writes: a lagging replica took over."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.sweeps import Mended, Swept
from forge_jobs.model.transitions import Transition
from forge_jobs.runtime.passes.cleanup import hand_over_once, sweep_once
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.keys import queue_tag
from tests.support.factories import (
    QUEUE,
    claim,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.firings import declared, fire, job_count, stored
from tests.support.key_prefixes import client_of, url_of
from tests.support.moments import KeySnapshot
from tests.support.redis_keys import NEVER
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

FLEET = "#"
OnFailure = Literal["cancel", "continue", "hold"]
CHILDREN = "children"
MINUTE = timedelta(minutes=1)
Remember = Callable[[], Awaitable[KeySnapshot]]


@pytest.fixture
def storage(either: Storage) -> Storage:
    return either


@pytest.fixture
def remember(request: pytest.FixtureRequest, storage: Storage, tmp_path: Path) -> Remember:
    """Remember the contents of the store at the time of the call."""
    backend = request.node.callspec.params["either"]
    prefix = url_of(backend, tmp_path).partition("prefix=")[2]
    return lambda: KeySnapshot.read(backend, prefix)


@pytest.mark.parametrize("ends_in", [0, -2])
async def test_a_key_that_was_about_to_end_does_not_come_back_for_ever(
    tmp_path: Path, ends_in: int
) -> None:
    """PTTL says 0 in the last millisecond of a key, and -2 of a key that expired after DUMP."""
    prefix = url_of("redis", tmp_path).partition("prefix=")[2]
    async with aclosing(client_of("redis")) as client:
        key = f"{prefix}:{{q}}:cool:k".encode()
        await client.set(key, "1")
        dumped = await client.dump(key)
        assert dumped is not None
        await KeySnapshot("redis", prefix, {key: (dumped, ends_in)}).come_back()
        assert await client.pttl(key) != NEVER


def under(*queues: str) -> Callable[[str], bool]:
    """The keys of these queues."""
    tags = tuple(f"{{{queue if queue == FLEET else queue_tag(queue)}}}:" for queue in queues)
    return lambda name: name.startswith(tags)


async def test_a_fleet_that_lost_a_firing_drops_no_occurrence(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    """The number of the record that was lost comes again, for another schedule."""
    first = await declared(storage, clock, name="first")
    second = await declared(storage, clock, name="second")
    before = await remember()
    assert await fire(storage, first, new_job())
    await before.come_back(under(FLEET))
    assert await fire(storage, second, new_job())
    assert await job_count(storage) == 2
    assert (await stored(storage, "second")).fired == 1


async def swept(storage: Storage, clock: ManualClock) -> Swept:
    """Sweep, and return what is mended once a minute has passed."""
    assert not (first := await storage.jobs.sweep(1_000)).notified
    assert not first.located
    clock.advance(MINUTE / 2)
    assert await storage.jobs.sweep(1_000) == Swept()
    clock.advance(MINUTE / 2)
    mended = await storage.jobs.sweep(1_000)
    await hand_over_once(storage.jobs)
    clock.advance(MINUTE)
    again = await storage.jobs.sweep(1_000)
    assert (again.notified, again.located) == ((), ())
    return mended


async def family(storage: Storage, policy: OnFailure = "cancel") -> tuple[JobId, JobId]:
    """Enqueue a parent, and a child in another queue."""
    parent = await enqueue_one(storage)
    return parent, await enqueue_one(storage, queue=CHILDREN, after=(After(parent, policy),))


async def status_of(storage: Storage, job_id: JobId) -> JobStatus:
    return (await get_job(storage, job_id)).status


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, queues=(QUEUE, CHILDREN))


async def test_a_child_whose_parent_lost_the_note_of_it_is_noted_again(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    parent = await enqueue_one(storage)
    before = await remember()
    child = await enqueue_one(storage, queue=CHILDREN, after=(After(parent),))
    await before.come_back(under(QUEUE))
    assert await swept(storage, clock) == Swept(notified=(Mended(CHILDREN, child),))
    await storage.jobs.heartbeat(lease, [], timedelta(seconds=15))
    lease = await register(storage, queues=(QUEUE, CHILDREN))
    assert await run_one(storage, lease, done()) == parent
    assert await hand_over_once(storage.jobs) == 1
    assert await status_of(storage, child) == JobStatus.PENDING


@pytest.mark.parametrize(
    ("policy", "end", "expected"),
    [
        ("cancel", done(), JobStatus.PENDING),
        ("cancel", dead(), JobStatus.CANCELLED),
        ("continue", dead(), JobStatus.PENDING),
        ("hold", dead(), JobStatus.BLOCKED),
        ("hold", done(), JobStatus.PENDING),
    ],
)
async def test_a_child_that_lost_what_it_was_told_is_told_again(
    storage: Storage,
    lease: PodLease,
    clock: ManualClock,
    remember: Remember,
    policy: OnFailure,
    end: Transition,
    expected: JobStatus,
) -> None:
    _, child = await family(storage, policy)
    before = await remember()
    await run_one(storage, lease, end)
    assert await hand_over_once(storage.jobs) == 1
    await before.come_back(under(CHILDREN))
    assert await status_of(storage, child) == JobStatus.BLOCKED
    assert await swept(storage, clock) == Swept(notified=(Mended(CHILDREN, child),))
    job = await get_job(storage, child)
    assert job.status == expected
    assert bool(job.held_by) == (expected == JobStatus.BLOCKED)


async def test_a_held_child_hears_of_its_parent_again_although_the_numbers_of_news_were_lost(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    parent, child = await family(storage, "hold")
    [claimed] = await claim(storage, lease)
    before = await remember()
    assert await finish(storage, claimed, dead())
    assert await hand_over_once(storage.jobs) == 1
    await before.come_back(under(QUEUE))
    # The parent has not ended after all, and ends well, by a clock that is far behind.
    clock.step_wall(-60 * MINUTE)
    assert await finish(storage, claimed, done())
    await hand_over_once(storage.jobs)
    assert await status_of(storage, parent) == JobStatus.DONE
    if await status_of(storage, child) == JobStatus.BLOCKED:
        assert await swept(storage, clock) == Swept(notified=(Mended(CHILDREN, child),))
    assert await status_of(storage, child) == JobStatus.PENDING


async def test_a_child_of_a_parent_that_was_lost_is_treated_as_of_one_that_was_removed(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    before = await remember()
    _, child = await family(storage)
    await before.come_back(under(QUEUE))
    assert await swept(storage, clock) == Swept(notified=(Mended(CHILDREN, child),))
    assert await status_of(storage, child) == JobStatus.CANCELLED


async def test_a_job_whose_locator_was_lost_can_be_found_again(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    before = await remember()
    job_id = await enqueue_one(storage)
    await before.come_back(lambda name: name.startswith("{@"))
    assert await storage.jobs.get([job_id]) == {}
    assert await swept(storage, clock) == Swept(located=(Mended(QUEUE, job_id),))
    assert await status_of(storage, job_id) == JobStatus.PENDING
    assert (await storage.jobs.cancel(only(job_id))).changed == (job_id,)


async def test_a_queue_whose_name_the_fleet_has_lost_is_listed_again(
    storage: Storage, remember: Remember
) -> None:
    before = await remember()
    job_id = await enqueue_one(storage, queue="new")
    await before.come_back(under(FLEET))
    listed = [(await storage.jobs.sweep(1_000)).queues for _ in range(16)]
    assert sorted(listed)[-2:] == [(), ("new",)]
    assert (await storage.jobs.counts())["new"].due == 1
    assert await status_of(storage, job_id) == JobStatus.PENDING


async def test_the_locator_of_a_job_that_was_lost_goes(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    await enqueue_one(storage)
    before = await remember()
    await enqueue_one(storage)
    await before.come_back(under(QUEUE))
    clock.advance(3 * MINUTE)
    forgotten = [(await storage.jobs.sweep(1_000)).forgotten for _ in range(16)]
    assert sum(forgotten) == 1


async def test_a_caller_that_dies_before_it_links_leaves_its_child_to_the_sweep(
    storage: Storage, lease: PodLease, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await enqueue_one(storage)
    child = new_job(queue=CHILDREN, after=(After(parent),))
    run = Database.run

    async def dies(database: Database, name: str, *others: Any, **named: Any) -> Any:
        if name == "link":
            raise RuntimeError("the process is gone")
        return await run(database, name, *others, **named)

    monkeypatch.setattr(Database, "run", dies)
    with suppress(RuntimeError):
        await storage.jobs.enqueue([child])
    monkeypatch.setattr(Database, "run", run)
    await run_one(storage, lease, done())
    await hand_over_once(storage.jobs)
    if await status_of(storage, child.id) == JobStatus.BLOCKED:
        assert await swept(storage, clock) == Swept(notified=(Mended(CHILDREN, child.id),))
    assert await status_of(storage, child.id) == JobStatus.PENDING


async def test_a_sweep_is_bounded_and_goes_on_where_it_ended(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    parent = await enqueue_one(storage)
    children = [new_job(queue=CHILDREN, after=(After(parent),)) for _ in range(30)]
    await storage.jobs.enqueue(children)
    before = await remember()
    await run_one(storage, lease, done())
    await hand_over_once(storage.jobs)
    await before.come_back(under(CHILDREN))
    told: set[JobId] = set()
    for _ in range(12):
        found = (await storage.jobs.sweep(20)).notified
        assert len(found) <= 30
        told |= {one.job_id for one in found}
        clock.advance(MINUTE)
    assert told == {child.id for child in children}
    assert await hand_over_once(storage.jobs) == 30


async def test_a_sweep_of_a_sound_store_changes_nothing(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    for policy in ("cancel", "hold"):
        await family(storage, policy)
        await run_one(storage, lease, dead())
        await family(storage, policy)
        await run_one(storage, lease, done())
        await hand_over_once(storage.jobs)
        await family(storage, policy)
        await claim(storage, lease)
        await family(storage, policy)
    removed, _ = await family(storage)
    await storage.jobs.delete(only(removed))
    # Nothing hands this over meanwhile.
    await family(storage)
    await run_one(storage, lease, done())
    before = await remember()
    for _ in range(20):
        assert await storage.jobs.sweep(1_000) == Swept()
        clock.advance(MINUTE)
    after = await remember()
    assert after.values == before.values


async def test_what_was_mended_is_told_on_the_timeline_and_in_the_log(
    storage: Storage, clock: ManualClock, remember: Remember, caplog: pytest.LogCaptureFixture
) -> None:
    before = await remember()
    job_id = await enqueue_one(storage)
    await before.come_back(lambda name: name.startswith("{@"))
    events = EventBuffer(storage.jobs, clock=clock)
    for _ in range(3):
        await sweep_once(storage.jobs, events=events)
        clock.advance(MINUTE)
    await events.flush_once()
    [event] = await storage.jobs.events(job_id=job_id)
    assert (event.kind, event.queue) == (EventKind.MENDED, QUEUE)
    await wait_until(
        lambda: f"mended 1 jobs, among them {job_id}" in caplog.text, description="log"
    )


async def test_a_sweep_of_an_idle_store_is_three_requests(
    storage: Storage, lease: PodLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storage.jobs.sweep(2_000)
    asked: list[str] = []
    run, commands = Database.run, Database.commands

    async def counted_run(
        database: Database, name: str, requests: Any, *others: Any, **more: Any
    ) -> Any:
        asked.extend([name] if requests else [])
        return await run(database, name, requests, *others, **more)

    async def counted_commands(database: Database, each: Any, **more: Any) -> Any:
        asked.extend(str(one[0]) for one in each)
        return await commands(database, each, **more)

    monkeypatch.setattr(Database, "run", counted_run)
    monkeypatch.setattr(Database, "commands", counted_commands)
    assert await storage.jobs.sweep(2_000) == Swept()
    # Where locators are spread three hashes are looked at in one request.
    names = dict.fromkeys(name for name in asked if name != "unlocated")
    assert list(names) == ["SMEMBERS", "survey", "HSCAN"]
