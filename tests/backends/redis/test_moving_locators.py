"""Locators are moved to the hashes over which they are spread, while programs go on."""

import asyncio
import random
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import ResponseError

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, SchemaMismatch, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base import schema
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.places import Places, State
from forge_jobs.storage.redis.keys import HASHES, Keys, locator_tag, old_hash
from forge_jobs.storage.redis.locators import locators, moving
from forge_jobs.storage.redis.locators.late_check import LateCheck
from tests.support.aftermath import problems_of
from tests.support.factories import done, new_job, only, register, run_one
from tests.support.key_prefixes import client_of, forget, url_of

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
KINDS = {"one": "redis", "several": "redis-cluster"}

# Moves in small steps, as a leading pod does, until killed or done.
_MOVER = """
import asyncio, sys
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.redis.locators import moving

moving._AT_ONCE, moving._STOOD_US, moving._STEPS = 20, 1000, 1

async def main():
    async with await open_storage(sys.argv[1]) as storage:
        places = storage.jobs._database.places
        while not places.are_spread:
            await storage.jobs.sweep(100)
            print(places.moved, flush=True)

asyncio.run(main())
"""


class Before:
    """A store as left by programs before layout 2, and the actions of a test on it."""

    def __init__(self, backend: str, folder: Path, clock: ManualClock | None) -> None:
        self.backend = backend
        self.url = url_of(backend, folder)
        self.keys = Keys(self.url.partition("prefix=")[2])
        self._clock = clock
        self._opened: list[Storage] = []

    async def open(self, **options: Any) -> Storage:
        """Open the store as a new program."""
        storage = await open_storage(self.url, clock=self._clock, **options)
        self._opened.append(storage)
        return storage

    async def close(self) -> None:
        for storage in self._opened:
            await storage.aclose()

    async def undo(self) -> None:
        """Take away what a new store has got of layout 2."""
        async with aclosing(client_of(self.backend)) as client:
            await client.hdel(f"{self.keys.fleet}:schema", "2")
            for base in Places(self.keys).old_bases():
                await client.delete(f"{base}:ids")

    async def begin(self) -> None:
        """Allow the move. On one server, where no move begins by itself, begin it."""
        if self.backend == "redis-cluster":
            await open_migrator(self.url).up()
            return
        database = database_of(await self.open())
        for base in database.places.old_bases():
            await database.run_one("move_begin", base, True, str)

    async def command(self, *command: str | int) -> Any:
        async with aclosing(client_of(self.backend)) as client:
            return await client.execute_command(*command)


def database_of(storage: Storage) -> Database:
    found: Database = storage.jobs._database  # type: ignore[attr-defined]
    return found


@pytest.fixture(params=list(KINDS))
async def before(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncGenerator[Before]:
    backend = KINDS[request.param]
    made = Before(backend, tmp_path, None if "load" in request.node.name else clock)
    await made.open()
    await made.undo()
    yield made
    await made.close()
    assert await problems_of(backend, tmp_path) == []
    await forget(backend, tmp_path)


async def move_all(storage: Storage, clock: ManualClock) -> None:
    for _ in range(100):
        await storage.jobs.sweep(100)
        clock.advance(MINUTE)
        if database_of(storage).places.are_spread:
            return
    raise AssertionError("the move does not end")


def test_every_hash_of_locators_has_its_share_of_the_slots() -> None:
    slots = [key_slot(f"x:{{{locator_tag(n)}}}:ids".encode()) for n in range(HASHES)]
    for servers in (2, 3, 4, 6, 8, 12, 16, 24):
        owners = [slot * servers // 16_384 for slot in slots]
        assert {owners.count(n) for n in range(servers)} == {HASHES // servers}
    # They are keys of stores: no release may change them.
    assert [locator_tag(n) for n in (0, 1, 47)] == TAGS


TAGS = ["@0.118", "@1.174", "@47.13"]


async def test_a_store_of_before_works_as_it_is_and_old_programs_beside(
    before: Before, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await before.open()
    request = new_job(fingerprint="a")
    await storage.jobs.enqueue([request])
    base = before.keys.old_locators(old_hash(request.id))
    for _ in range(3):
        await storage.jobs.sweep(100)
        clock.advance(MINUTE)
    assert await before.command("HEXISTS", f"{base}:ids", request.id) == 1
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        await before.open(migrate=True)
    assert await before.command("HLEN", f"{before.keys.fleet}:schema") == 1
    layout = storage.health().layout
    assert ("forge-jobs migrate up" in layout) is (before.backend == "redis-cluster")


async def test_a_program_of_before_is_refused_once_the_move_may_begin(
    before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_migrator(before.url).up()
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    if before.backend == "redis-cluster":
        with pytest.raises(SchemaMismatch, match="from schema version 2 on"):
            await before.open()
    else:
        await before.open()


async def test_all_is_moved_and_found_at_every_step(
    before: Before, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_STEPS", 3)
    storage, other = await before.open(), await before.open()
    ids = [new_job_id() for _ in range(300)]
    await storage.jobs.enqueue([new_job(id=job_id, fingerprint="a") for job_id in ids])
    await before.begin()
    told: set[str] = set()
    for number in range(200):
        await storage.jobs.sweep(100)
        told.add(storage.health().layout)
        assert len(await other.jobs.get(ids)) == len(ids)
        # A repeat counts as one, whichever program makes the repeat.
        [again] = await other.jobs.enqueue([new_job(id=ids[number], fingerprint="a")])
        assert again.job_id == ids[number]
        if database_of(storage).places.are_spread:
            break
        clock.advance(MINUTE)
    assert database_of(storage).places.are_spread
    assert len(await storage.jobs.get(ids)) == len(ids)
    # How far the move was could be seen.
    assert any("16 hashes are moved" in text for text in told)
    assert storage.health().layout == ""
    changed = await storage.jobs.cancel(only(*ids[:10]), limit=100)
    assert len(changed.changed) == 10
    for base in Places(before.keys).old_bases():
        text = await before.command("GET", f"{base}:ids")
        assert text == (b"all from=2" if before.backend == "redis-cluster" else b"all from=1")


async def test_old_programs_that_still_run_are_refused_and_never_wrong(
    before: Before, clock: ManualClock
) -> None:
    storage = await before.open()
    request = new_job(fingerprint="a")
    await storage.jobs.enqueue([request])
    await before.begin()
    await move_all(storage, clock)
    key = f"{before.keys.old_locators(old_hash(request.id))}:ids"
    for command in (("HMGET", key, request.id), ("HSETNX", key, request.id, "q\n1")):
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await before.command(*command)


LATER = (*schema.MIGRATIONS, schema.Layout(3, "later", 3))


async def said(before: Before) -> set[str]:
    bases = Places(before.keys).old_bases()
    return {(await before.command("GET", f"{base}:ids") or b"").decode() for base in bases}


@pytest.mark.daily("one")
async def test_a_newer_layout_is_noted_beside_the_locators_before_it_is_with_the_fleet(
    before: Before, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before.backend == "redis":
        return  # Nothing is opened there without the fleet's records.
    storage = await before.open()
    await before.begin()
    await move_all(storage, clock)
    assert await said(before) == {"all from=2"}
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", LATER)
        await open_migrator(before.url).up()
    assert await said(before) == {"all from=3"}
    # A pod of this release that still runs, and has not heard, lowers nothing.
    places = database_of(storage).places
    places.is_said = False
    await storage.jobs.sweep(100)
    assert places.is_said
    assert await said(before) == {"all from=3"}
    lower = dict.fromkeys(places.old_bases(), (2, True))
    await database_of(storage).run("move_end", lower, bool)
    assert await said(before) == {"all from=3"}
    with pytest.raises(SchemaMismatch, match="from schema version 3 on"):
        await LateCheck(database_of(storage)).begin(Unavailable("the fleet is silent"))


async def test_a_newer_layout_that_comes_before_the_move_ends_stands_beside_the_locators(
    before: Before, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before.backend == "redis":
        return  # As above.
    storage = await before.open()
    await storage.jobs.enqueue([new_job() for _ in range(20)])
    await before.begin()
    await storage.jobs.sweep(100)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", LATER)
        await open_migrator(before.url).up()
    await move_all(storage, clock)
    assert await said(before) == {"all from=3"}


async def test_a_move_that_died_before_its_last_step_is_ended(
    before: Before, clock: ManualClock
) -> None:
    storage = await before.open()
    await before.begin()
    await move_all(storage, clock)
    for base in Places(before.keys).old_bases():
        await before.command("SET", f"{base}:ids", "moved")
    other = await before.open()
    await other.jobs.sweep(100)
    assert all(text.startswith("all from=") for text in await said(before))


async def test_what_one_bundle_finds_out_of_the_store_holds_for_those_of_other_loops(
    before: Before,
) -> None:
    storage = await before.open()
    async with await storage.reopen() as other:
        database_of(storage).known.problem = "the layout is newer; upgrade this program"
        with pytest.raises(SchemaMismatch, match="the layout is newer"):
            await other.jobs.counts()
        assert other.health().problem == storage.health().problem


@pytest.mark.parametrize("state", list(State))
async def test_an_id_taken_in_one_queue_is_not_stored_in_another(
    before: Before, clock: ManualClock, state: State
) -> None:
    storage, other = await before.open(), await before.open()
    request = new_job(fingerprint="a")
    await storage.jobs.enqueue([request])
    if state is not State.OLD:
        await before.begin()
        await storage.jobs.sweep(100)
    if state is State.MOVED:
        await move_all(storage, clock)
    with pytest.raises(Conflict):
        await other.jobs.enqueue([new_job(id=request.id, queue="elsewhere", fingerprint="b")])
    assert (await other.jobs.counts()).get("elsewhere") is None


@pytest.mark.parametrize("state", list(State))
async def test_locators_of_removed_jobs_go(
    before: Before, clock: ManualClock, state: State
) -> None:
    storage = await before.open()
    lease = await register(storage)
    ids = [new_job_id() for _ in range(20)]
    await storage.jobs.enqueue([new_job(id=job_id, fingerprint="a") for job_id in ids])
    for _ in ids:
        await run_one(storage, lease, done())
    await storage.jobs.delete(JobFilter(), limit=100)
    if state is not State.OLD:
        await before.begin()
        await storage.jobs.sweep(100)
    if state is State.MOVED:
        await move_all(storage, clock)
    clock.advance(3 * MINUTE)
    await storage.jobs.cleanup(100)
    found = await database_of(storage).commands([("HLEN", key) for key in places_of(ids, storage)])
    assert sum(found) == 0


def places_of(ids: list[JobId], storage: Storage) -> set[str]:
    places = database_of(storage).places
    return {places.of(one) for one in ids} | {s for one in ids if (s := places.source(one))}


async def test_a_copy_that_a_failover_has_lost_is_made_again(
    before: Before, clock: ManualClock
) -> None:
    if before.backend == "redis":
        return  # One server loses all its last writes.
    storage = await before.open()
    ids = [new_job_id() for _ in range(50)]
    await storage.jobs.enqueue([new_job(id=job_id, fingerprint="a") for job_id in ids])
    await before.begin()
    await storage.jobs.sweep(100)
    for job_id in ids:
        await before.command("DEL", before.keys.locators(job_id))
    await move_all(storage, clock)
    assert len(await storage.jobs.get(ids)) == len(ids)


async def test_a_look_under_way_while_a_hash_begins_to_move_misses_nothing(
    before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task of the same process learns of the move between the two steps of the look."""
    storage, other = await before.open(), await before.open()
    ids = [new_job_id() for _ in range(50)]
    await storage.jobs.enqueue([new_job(id=job_id, fingerprint="a") for job_id in ids])
    for base in Places(before.keys).old_bases():
        await database_of(other).run_one("move_begin", base, True, str)
    read_sources = locators.read_sources

    async def heard_meanwhile(db: Database, *wanted: Any, **more: Any) -> Any:
        answer = await read_sources(db, *wanted, **more)
        await moving.look(db)
        return answer

    monkeypatch.setattr(locators, "read_sources", heard_meanwhile)
    assert len(await storage.jobs.get(ids)) == len(ids)


@pytest.mark.long
async def test_under_load_no_job_is_missed_and_no_id_stored_twice_while_movers_are_killed(
    before: Before,
) -> None:
    first, second = await before.open(), await before.open()
    ids = [new_job_id() for _ in range(1000)]
    await first.jobs.enqueue([new_job(id=job_id, fingerprint="a") for job_id in ids])
    taken: list[JobId] = list(ids)
    stop = asyncio.Event()
    load = [
        asyncio.create_task(_load(one, stop))
        for one in (
            _race(first, second, taken),
            _race(second, first, taken),
            _read(first, taken),
            _read(second, taken),
        )
    ]
    await before.begin()
    deaths = 0
    for lines in count(2, 5):
        if await _moves(before.url, lines):
            break
        deaths += 1
    stop.set()
    await asyncio.gather(*load)
    assert deaths >= 3
    stored = await first.jobs.counts()
    assert sum(each.by_status[JobStatus.PENDING] for each in stored.values()) == len(taken)
    fresh = await before.open()
    assert database_of(fresh).places.are_spread
    for start in range(0, len(taken), 500):
        assert len(await fresh.jobs.get(taken[start : start + 500])) == len(
            taken[start : start + 500]
        )


async def _load(each: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    while not stop.is_set():
        await each()


def _race(one: Storage, other: Storage, taken: list[JobId]) -> Callable[[], Awaitable[None]]:
    """Two programs store one id of the caller's in two queues: one of them may."""

    async def race() -> None:
        job_id = new_job_id()
        calls = [
            storage.jobs.enqueue([new_job(id=job_id, queue=queue, fingerprint=queue)])
            for storage, queue in ((one, "a"), (other, "b"))
        ]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(type(each).__name__ for each in ended) == ["Conflict", "list"], ended
        taken.append(job_id)

    return race


def _read(storage: Storage, taken: list[JobId]) -> Callable[[], Awaitable[None]]:
    async def read() -> None:
        wanted = random.sample(taken, 20)
        assert len(await storage.jobs.get(wanted)) == len(wanted)

    return read


async def _moves(url: str, lines: int) -> bool:
    """Return whether a mover has moved all before it was killed, after so many steps."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MOVER, url, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(lines):
        if not await process.stdout.readline():
            assert await process.wait() == 0
            return True
    process.send_signal(signal.SIGKILL)
    await process.wait()
    return False
