"""The scripts of a Redis store: at any moment, on any text, and only on their own keys."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from redis.asyncio import Redis

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus, NewJob, Unique
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.database import BASES_AT_ONCE
from forge_jobs.storage.redis.base.places import Places
from forge_jobs.storage.redis.jobs.enqueue import enqueue
from forge_jobs.storage.redis.locators.locators import locate
from forge_jobs.testing.servers import RedisServer
from tests.support import servers
from tests.support.factories import (
    QUEUE,
    SECOND,
    claim,
    claim_one,
    counters,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.redis_databases import KEYS, opened

pytestmark = pytest.mark.anyio

HOSTILE = [
    "[ab]",
    "a",
    "b",
    "*",
    "?",
    "{a}",
    "}{",
    "{#}",
    "#",
    "{@1}",
    "@1",
    "j:x",
    "a:b",
    "%",
    "%7B",
]


async def live(storage: Storage, queue: str) -> JobId:
    """A whole life in one queue, with a retry, a beat and a child."""
    lease = await register(storage, queues=(queue,))
    parent = await enqueue_one(storage, queue=queue, unique=Unique(queue), tags=(queue,))
    child = await enqueue_one(storage, queue=queue, after=(After(parent),))
    await run_one(storage, lease, failed(), queue=queue)
    claimed = await claim_one(storage, lease, queue=queue)
    await storage.jobs.heartbeat(lease, [held(claimed, "w")], 15 * SECOND)
    assert await finish(storage, claimed, done('{"x":1}'))
    [news] = await storage.jobs.handovers(10)
    assert await storage.jobs.deliver([Delivery(news, "settle")]) == 1
    assert await run_one(storage, lease, done(), queue=queue) == child
    return parent


async def test_a_flush_of_scripts_at_any_moment_changes_nothing(
    storage: Storage, client: Redis
) -> None:
    flushes = 0

    async def flush() -> None:
        nonlocal flushes
        while True:
            await client.script_flush()
            flushes += 1

    async with anyio.create_task_group() as group:
        group.start_soon(flush)
        lives = [await live(storage, f"queue {number}") for number in range(20)]
        group.cancel_scope.cancel()
    assert flushes > len(lives)
    found = await storage.jobs.get(lives)
    assert [found[job_id].status for job_id in lives] == [JobStatus.DONE] * len(lives)
    for number in range(20):
        assert (await counters(storage, f"queue {number}"))["succeeded"] == 2


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":"\\u0000","b":"\\ud83d\\ude00"}',
        '{ "spaced" : 1.0 , "big":12345678901234567890, "exp":1E400 }',
        json.dumps({"bytes": "é\u2028\U0001f600" * 1000}, ensure_ascii=False),
        '{"deep":' + "[" * 10_000 + "]" * 10_000 + "}",
    ],
    ids=["escapes", "numbers", "unicode", "deep"],
)
async def test_payload_and_result_are_the_same_bytes_in_the_server(
    storage: Storage, client: Redis, payload: str
) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage, payload=payload)
    claimed = await claim_one(storage, lease)
    assert claimed.payload == payload
    assert await finish(storage, claimed, done(payload))
    key = f"{KEYS.queue(QUEUE)}:j:{job_id}"
    assert await client.hmget(key, ["payload", "result"]) == [payload.encode()] * 2


async def test_queues_with_hostile_names_live_side_by_side(storage: Storage, client: Redis) -> None:
    lives = {name: await live(storage, name) for name in HOSTILE}
    for name, job_id in lives.items():
        assert (await get_job(storage, job_id)).queue == name
        assert await client.exists(f"{KEYS.queue(name)}:j:{job_id}") == 1
        assert (await counters(storage, name))["enqueued"] == 2
    assert len({KEYS.queue(name) for name in HOSTILE}) == len(HOSTILE)
    for name in HOSTILE:
        outcome = await storage.jobs.delete(JobFilter(queues=(name,)))
        assert len(outcome.changed) == 2
        gone = lives.pop(name)
        assert set(await storage.jobs.get([gone, *lives.values()])) == set(lives.values())


async def test_keys_of_others_are_left_alone(server: RedisServer, client: Redis) -> None:
    others = {
        b"scripts:x:{default}:j:1": b"a",
        b"scripts{default}:lines": b"b",
        b"xscripts:{default}:lines": b"c",
        b"scripts": b"d",
        b"{default}:lines": b"e",
    }
    await client.mset({key.decode(): value for key, value in others.items()})
    for prefix in ("scripts", "scripts:y"):
        async with await open_storage(f"{server.url}?prefix={prefix}") as storage:
            await live(storage, QUEUE)
            assert sum((await storage.jobs.counts())[QUEUE].by_status.values()) == 2
            await storage.jobs.cleanup(1000)
    assert await client.mget(list(others)) == list(others.values())
    mine = [key async for key in client.scan_iter(match="*") if key not in others]
    assert all(key.startswith((b"scripts:{", b"scripts:y:{")) for key in mine)
    await client.delete(*others)
    await client.delete(*(key for key in mine if key.startswith(b"scripts:y:")))


async def test_a_batch_of_more_queues_than_one_step_takes(storage: Storage) -> None:
    queues = [f"q{number}" for number in range(2 * BASES_AT_ONCE + 10)]
    batch = [new_job(queue=queue) for queue in queues for _ in range(4)]
    outcomes = await storage.jobs.enqueue(batch)
    assert [outcome.job_id for outcome in outcomes] == [request.id for request in batch]
    assert set(await storage.jobs.get([request.id for request in batch])) == {
        request.id for request in batch
    }
    assert all(each.by_status["pending"] == 4 for each in (await storage.jobs.counts()).values())


@pytest.mark.parametrize("queues", [2, BASES_AT_ONCE + 1], ids=["one step", "several steps"])
@pytest.mark.parametrize("has_edges", [False, True])
async def test_a_refusal_in_one_queue_stores_nothing_in_any(
    either: Storage, queues: int, has_edges: bool
) -> None:
    last = f"q{queues - 1}"
    holder = await enqueue_one(either, queue=last, unique=Unique("k"))
    batch = [new_job(queue=f"q{number}") for number in range(queues)]
    if has_edges:
        batch.append(new_job(queue="q0", after=(After(batch[0].id),)))
    batch.append(new_job(queue=last, unique=Unique("k", "error")))
    with pytest.raises(Conflict, match=holder):
        await either.jobs.enqueue(batch)
    assert [line.id for line in (await either.jobs.list(JobFilter())).jobs] == [holder]
    assert await counters(either, "q0") == {}


async def test_a_locator_without_a_job_means_nothing(storage: Storage, client: Redis) -> None:
    job_id = new_job_id()
    await client.sadd(f"{KEYS.fleet}:queues", "elsewhere")
    await client.hset(Places(KEYS).of(job_id), job_id, "elsewhere\n1")
    assert await storage.jobs.get([job_id]) == {}
    assert (await storage.jobs.cancel(only(job_id))).refused == {job_id: "not_found"}
    assert (await storage.jobs.list(only(job_id))).jobs == ()
    with pytest.raises(NotFound, match=job_id):
        await enqueue_one(storage, after=(After(job_id),))
    await enqueue_one(storage, id=job_id)
    assert (await get_job(storage, job_id)).queue == QUEUE


async def test_an_id_moves_back_to_a_queue_that_it_has_left(either: Storage) -> None:
    job_id = new_job_id()
    for queue in ("a", "b", "a", "b", "b"):
        await enqueue_one(either, id=job_id, queue=queue)
        assert (await get_job(either, job_id)).queue == queue
        await either.jobs.delete(only(job_id))


async def test_the_same_fingerprint_elsewhere_is_a_repeat(either: Storage) -> None:
    job_id = await enqueue_one(either, queue="a", fingerprint="f")
    [outcome] = await either.jobs.enqueue([new_job(id=job_id, queue="b", fingerprint="f")])
    assert outcome.job_id == job_id
    for other in ("", "g"):
        with pytest.raises(Conflict, match=job_id):
            await either.jobs.enqueue([new_job(id=job_id, queue="b", fingerprint=other)])
    assert set(await either.jobs.counts()) == {"a"}


async def test_times_beyond_the_numbers_of_lua_are_exact(storage: Storage) -> None:
    far = (await storage.cron.now()).replace(year=9000, microsecond=123_457)
    job_id = await enqueue_one(storage, run_at=far, expires_at=far + timedelta(microseconds=1))
    job = await get_job(storage, job_id)
    assert (job.due_at, job.expires_at) == (far, far + timedelta(microseconds=1))
    assert await claim(storage, await register(storage)) == []


async def test_racing_callers_store_one_id_in_one_of_two_queues(either: Storage) -> None:
    ids = [new_job_id() for _ in range(20)]
    refused = 0

    async def store(job_id: JobId, queue: str) -> None:
        nonlocal refused
        try:
            await either.jobs.enqueue([NewJob(id=job_id, queue=queue, kind="k", payload="{}")])
        except Conflict:
            refused += 1

    async with anyio.create_task_group() as group:
        for job_id in ids:
            for queue in ("a", "b"):
                group.start_soon(store, job_id, queue)
    assert refused == len(ids)
    stored = [line.id for line in (await either.jobs.list(JobFilter(), limit=100)).jobs]
    assert sorted(stored) == sorted(ids)


async def test_an_id_taken_elsewhere_between_its_locator_and_its_job_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = new_job_id()
    async with (
        opened(servers.redis_cluster_url(), prefix=job_id) as slow,
        opened(servers.redis_cluster_url(), prefix=job_id) as quick,
    ):
        run = slow.run
        steps: list[str] = []

        async def run_after_the_quick_one(name: str, *rest: Any, **others: Any) -> Any:
            steps.append(name)
            if steps == ["locate", "enqueue"]:
                await enqueue(quick, [new_job(id=job_id, queue="b")])
            return await run(name, *rest, **others)

        monkeypatch.setattr(slow, "run", run_after_the_quick_one)
        with pytest.raises(Conflict, match=job_id):
            await enqueue(slow, [new_job(id=job_id, queue="a")])
        assert await locate(quick, [job_id]) == {job_id: "b"}
        commands = [("EXISTS", f"{quick.keys.queue(name)}:j:{job_id}") for name in ("a", "b")]
        assert await quick.commands(commands) == [0, 1]
