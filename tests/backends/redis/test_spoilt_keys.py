"""A key of another type in the place of one of a queue's stops that queue, and loses nothing."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import StorageRefused, Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, ClaimedJob, JobStatus, NewJob, Unique
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.keys import Keys
from tests.support.aftermath import problems_of
from tests.support.factories import (
    KIND,
    LEASE,
    SECOND,
    claim,
    counters,
    dead,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    new_job,
    only,
    register,
    revive,
)
from tests.support.key_prefixes import client_of, forget, url_of
from tests.support.runtimes import ended, quick_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=1)
LINE = f"0 n {KIND}"
STOPPING = (
    "queue",
    "slots",
    "lines",
    "claimed",
    "expiring",
    "s:pending",
    "s:done",
    "ended:done",
    "unique",
    f"ready:{LINE}",
    f"kind:{KIND}",
)
OTHERS = ("owners", "minutes", "unfolded", "gone", "held", "started", "handovers", "results")


@dataclass
class Store:
    """A store whose queue "a" is spoilt and mended."""

    storage: Storage
    keys: Keys
    client: Any

    def key_of(self, name: str) -> str:
        return f"{self.keys.queue('a')}:{name}"

    async def spoil(self, name: str) -> None:
        key = self.key_of(name)
        if await self.client.exists(key):
            await self.client.rename(key, self.key_of("aside"))
        await self.client.set(key, "spoilt")

    async def mend(self, name: str) -> None:
        key = self.key_of(name)
        await self.client.delete(key)
        if await self.client.exists(self.key_of("aside")):
            await self.client.rename(self.key_of("aside"), key)


@pytest.fixture(params=["redis", "redis-cluster"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncGenerator[Store]:
    backend = request.param
    url = url_of(backend, tmp_path)
    keys = Keys(url.partition("prefix=")[2])
    async with (
        await open_storage(url, clock=clock) as storage,
        aclosing(client_of(backend)) as client,
    ):
        yield Store(storage, keys, client)
    assert await problems_of(backend, tmp_path) == []
    await forget(backend, tmp_path)


async def tried(call: Awaitable[Any]) -> None:
    with suppress(Unavailable):
        await call


def ends(claimed: Sequence[ClaimedJob]) -> list[Finalization]:
    return [Finalization(each.claim, done()) for each in claimed]


async def all_passes(storage: Storage) -> None:
    """Make all passes over all queues. None of them may fail for one queue."""
    jobs = storage.jobs
    assert "b" in await jobs.counts()
    assert "b" in {each.name for each in await storage.config.queues()}
    await jobs.expire(100)
    await jobs.cleanup(100)
    await jobs.roll_up(100)
    await jobs.sweep(100)
    await jobs.stale_claims(LEASE, 100)
    await jobs.list(JobFilter(), limit=100)
    await storage.procs.pods()
    await storage.procs.due_kinds(["a", "b"])


@pytest.mark.parametrize("name", [*STOPPING, *OTHERS])
async def test_it_stops_its_queue_alone_and_nothing_is_lost(
    store: Store, clock: ManualClock, name: str
) -> None:
    storage, jobs = store.storage, store.storage.jobs
    lease = await register(storage, queues=("a", "b"), lease_for=LONG)
    # Those without tags are plain, whose ends are written by themselves.
    tags = ("t",) if name == "ended:done" else ()
    wanted = [new_job(queue=queue, tags=tags) for queue in ("a", "b") for _ in range(4)]
    await jobs.enqueue(wanted)
    taken = {queue: await claim(storage, lease, queue=queue, limit=2) for queue in ("a", "b")}
    one, *more = [
        new_job(queue="a"),
        new_job(queue="a", unique=Unique("k")),
        new_job(queue="a", expires_at=clock.now() + LONG),
    ]
    await store.spoil(name)

    # What is asked of the queue is taken or refused, and never both.
    for call in (
        claim(storage, lease, queue="a", limit=1),
        jobs.enqueue([one]),
        jobs.enqueue(more),
        jobs.exchange(
            "a",
            ends(taken["a"][:1]),
            Demand(worker_ids=("w", "v"), limit=2, kinds=frozenset({KIND})),
            lease,
        ),
        jobs.finalize(ends(taken["a"][1:])),
    ):
        await tried(call)
    # The others go on in the same calls.
    assert len(await claim(storage, lease, queue="b", limit=1)) == 1
    assert await jobs.finalize(ends(taken["b"])) == [True, True]
    await jobs.enqueue([new_job(queue="b")])
    beat = await jobs.heartbeat(lease, [], LONG)
    assert beat.lease_held
    assert "b" in beat.queues
    await all_passes(storage)
    told = storage.health()
    if name in STOPPING:
        assert f"{store.key_of(name)} does not hold" in told.unreadable["a"]
        assert "a" in told.silent
        with pytest.raises(StorageRefused, match=r"queue a cannot be read: .* from a backup"):
            await jobs.enqueue([one])
    assert "b" not in {*told.unreadable, *told.silent}

    await store.mend(name)
    clock.advance(2 * SECOND)
    for repeated in ([one], more):
        await jobs.enqueue(repeated)
    assert storage.health().unreadable.get("a") is None
    assert storage.health().silent == frozenset()
    await _drain(storage, clock, taken)
    await _all_done(storage, [*wanted, one, *more])
    await _all_counted(storage)


async def _drain(
    storage: Storage, clock: ManualClock, taken: Mapping[str, Sequence[ClaimedJob]]
) -> None:
    """Run all jobs, as a pod does after another pod has died with its claims."""
    assert await storage.jobs.finalize(ends(taken["a"])) == [True] * len(taken["a"])
    clock.advance(2 * LONG)
    stale = await storage.jobs.stale_claims(LEASE, 100)
    for each in stale:
        await revive(storage, each.claim)
    clock.advance(LONG)
    lease = await register(storage, queues=("a", "b"), lease_for=LONG)
    for queue in ("a", "b"):
        while some := await claim(storage, lease, queue=queue, limit=10):
            assert all(await storage.jobs.finalize(ends(some)))


async def _all_done(storage: Storage, wanted: Sequence[NewJob]) -> None:
    found = await storage.jobs.get([each.id for each in wanted])
    expired = {each.id for each in wanted if each.expires_at}
    states = {job_id: job.status for job_id, job in found.items() if job_id not in expired}
    assert states == {each.id: JobStatus.DONE for each in wanted if each.id not in expired}


_ENDS = ("succeeded", "failed", "crashed", "released")


async def _all_counted(storage: Storage) -> None:
    """Assert that each claim has one counted end, and each job that is done one success."""
    for queue, counts in (await storage.jobs.counts()).items():
        counted = Counter(await counters(storage, queue))
        assert counted["claimed"] == sum(counted[name] for name in _ENDS), (queue, counted)
        assert counted["succeeded"] == counts.by_status["done"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("unique", "succeeded"),
        ("ended:done", "succeeded"),
        (f"ready:{LINE}", "released"),
        (f"ready:{LINE}", "failed"),
    ],
)
async def test_ends_of_claims_in_a_step_that_meets_a_key_of_another_type_are_counted(
    store: Store, clock: ManualClock, name: str, cause: str
) -> None:
    storage, jobs = store.storage, store.storage.jobs
    lease = await register(storage, queues=("a",), lease_for=LONG)
    unique = Unique("k") if name == "unique" else None
    await jobs.enqueue([new_job(queue="a"), new_job(queue="a", unique=unique)])
    claimed = await claim(storage, lease, queue="a", limit=2)
    await store.spoil(name)

    async def end() -> Sequence[bool | None]:
        if cause == "released":
            return await jobs.release([each.claim for each in claimed])
        how = done() if cause == "succeeded" else failed(SECOND)
        return await jobs.finalize([Finalization(each.claim, how) for each in claimed])

    with pytest.raises(Unavailable):
        await end()
    await store.mend(name)
    clock.advance(2 * SECOND)
    assert await end() == [True, True]
    assert await counters(storage, "a") == {"enqueued": 2, "claimed": 2, cause: 2}
    await _drain(storage, clock, {"a": ()})
    assert (await jobs.counts())["a"].by_status["done"] == 2
    await _all_counted(storage)


@pytest.mark.parametrize("name", ["s:pending", f"kind:{KIND}", f"ready:{LINE}"])
async def test_what_was_refused_and_is_not_repeated_leaves_nothing(
    store: Store, clock: ManualClock, name: str
) -> None:
    storage = store.storage
    await register(storage, queues=("a", "b"), lease_for=LONG)
    await storage.jobs.enqueue([new_job(queue="a"), new_job(queue="a")])
    await store.spoil(name)
    for batch in ([new_job(queue="a")], [new_job(queue="a") for _ in range(3)]):
        with pytest.raises(StorageRefused):
            await storage.jobs.enqueue(batch)
    await store.mend(name)
    clock.advance(2 * SECOND)
    await _drain(storage, clock, {"a": ()})
    assert (await storage.jobs.counts())["a"].by_status["done"] == 2


async def test_the_rest_of_the_fleet_goes_on_without_the_names_of_its_queues(
    store: Store, clock: ManualClock
) -> None:
    storage = store.storage
    await storage.jobs.enqueue([new_job(queue="b")])
    await storage.jobs.counts()
    names = f"{store.keys.fleet}:queues"
    await store.client.rename(names, f"{store.keys.fleet}:aside")
    await store.client.set(names, "spoilt")
    assert "b" in await storage.jobs.counts()
    assert f"{names} does not hold a set" in storage.health().unreadable[""]
    await store.client.delete(names)
    await store.client.rename(f"{store.keys.fleet}:aside", names)


@pytest.mark.parametrize("part", ["err", "waits", "kids", "told"])
async def test_a_key_of_one_job_harms_that_job_alone(
    store: Store, clock: ManualClock, part: str
) -> None:
    storage, jobs = store.storage, store.storage.jobs
    lease = await register(storage, queues=("a",), lease_for=LONG)
    parents = [new_job(queue="a") for _ in range(4)]
    children = [new_job(queue="a", after=(After(one.id),)) for one in parents]
    await jobs.enqueue([*parents, *children])
    ids = [one.id for one in (*parents, *children)]
    claimed = await claim(storage, lease, queue="a", limit=4)
    [second] = [one for one in claimed if one.claim.job_id == parents[1].id]
    if part == "err":
        assert await finish(storage, second, dead(error=error()))
    elif part == "told":
        assert await finish(storage, second, done())
    whose = children[1].id if part == "waits" else parents[1].id
    # Entries are "number, parent, status".
    handed = await store.client.zrange(store.key_of("handovers"), 0, -1)
    name = f"{part}:{handed[0].split()[0].decode() if part == 'told' else whose}"
    assert await store.client.exists(store.key_of(name))
    await store.spoil(name)
    assert all(await jobs.finalize(ends(claimed)))

    # All children but one hear at once. The sweep finds the one that only the spoilt key names.
    assert await hand_over_once(jobs) == (4 if part == "err" else 3)
    for _ in range(3):
        await jobs.sweep(1_000)
        clock.advance(61)
    await hand_over_once(jobs)
    found = await jobs.get(ids)
    told = {each.id for each in children if found[each.id].status is not JobStatus.BLOCKED}
    assert told == {each.id for each in children if part != "waits" or each is not children[1]}
    listed = {line.id: line for line in (await jobs.list(JobFilter())).jobs}
    assert listed.keys() == found.keys() == {*ids}
    spoilt = {job_id for job_id, job in found.items() if job.unreadable}
    assert spoilt == ({whose} if part in ("err", "waits") else set())
    assert bool(listed[whose].unreadable) is (part == "err")
    await jobs.cancel(only(*(each.id for each in children)))
    again = await jobs.requeue(only(*(each.id for each in children)))
    assert again.refused == ({whose: "silent"} if part == "waits" else {})
    assert {*again.changed, *again.refused} == {each.id for each in children}
    await store.mend(name)
    await hand_over_once(jobs)
    assert {*(await jobs.delete(only(*ids))).changed} == {*ids}


async def test_it_is_logged_once_and_a_look_at_all_keys_finds_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    storage = store.storage
    await storage.jobs.enqueue([new_job(queue=queue) for queue in ("a", "b")])
    assert storage.unreadable is not None
    assert await storage.unreadable() == {}
    await store.spoil("hours")
    for _ in range(3):
        assert "hours does not hold a sorted set" in (await storage.unreadable())["a"]
    assert len([each for each in caplog.records if "all else goes on" in each.message]) == 1
    # Nothing of a job lies there.
    assert storage.health().silent == frozenset()
    await storage.jobs.enqueue([new_job(queue="a")])
    await store.mend("hours")


async def test_a_pod_goes_on_with_its_other_queues_and_comes_back(tmp_path: Path) -> None:
    url = url_of("redis", tmp_path)
    handlers = HandlerRegistry()

    @handlers.job(KIND)
    async def work() -> None: ...

    async with (
        await open_storage(url) as storage,
        aclosing(client_of("redis")) as client,
    ):
        store = Store(storage, Keys(url.partition("prefix=")[2]), client)
        runtime = QueueRuntime(storage, handlers, settings=quick_settings()).with_queues(a=1, b=1)
        async with runtime.start() as handle:
            for name in ("slots", "claimed", "queue"):
                await ended(storage, await enqueue_one(storage, queue="a"))
                await store.spoil(name)
                await ended(storage, await enqueue_one(storage, queue="b"))
                await wait_until(
                    lambda: "does not hold" in handle.health().queues["a"].unreadable,
                    description="health names the key",
                )
                if name != "claimed":  # An idle pod's beats do not look there.
                    await wait_until(
                        lambda: handle.health().queues["a"].silent, description="beats say so"
                    )
                assert handle.health().able_to_claim
                await store.mend(name)
                waiting = await wait_until(
                    lambda: _stored(storage), description="it takes jobs again"
                )
                await ended(storage, waiting)
                await wait_until(
                    lambda: handle.health().queues["a"].unreadable == "",
                    description="health names nothing",
                )
    assert await problems_of("redis", tmp_path) == []
    await forget("redis", tmp_path)


async def _stored(storage: Storage) -> JobId | None:
    try:
        return await enqueue_one(storage, queue="a")
    except StorageRefused:
        return None
