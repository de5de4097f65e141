"""A job that is enqueued alone has a script of its own, with the same result."""

from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, JobStatus, Unique
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.scripts import script
from tests.support import redis_keys
from tests.support.asked import asked
from tests.support.factories import (
    QUEUE,
    claim_one,
    counters,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    register,
)
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio


async def contents(client: Redis) -> dict[str, Any]:
    """Return the records of the store's jobs."""
    schema = f"{KEYS.fleet}:schema"
    found = await redis_keys.contents(client, KEYS.prefix)
    left = {key: value for key, value, _ in found if key != schema}
    # A queue's time of waiting is set by the server's own clock.
    left[f"{KEYS.queue(QUEUE)}:queue"].pop("waits")
    return left


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": -7, "kind": "naïve {x}:y", "payload": '{"text":"\\n☃"}'},
        {"max_attempts": None, "timeout": timedelta(seconds=1.5), "keep_result": False},
        {"metadata": '{"a":"b"}', "trace": '{"traceparent":"00"}'},
        {"unique": Unique("k")},
        {"tags": ("a", "b")},
        {"schedule": "nightly"},
        {"fingerprint": "f" * 32},
        {"delay": timedelta(minutes=1)},
        {"delay": timedelta(0)},
        {"run_at": ManualClock().now()},
        {"expires_at": ManualClock().now() + timedelta(days=1)},
        {"result_ttl": timedelta(days=1)},
    ],
)
async def test_it_leaves_what_a_batch_would(
    storage: Storage, client: Redis, options: dict[str, Any]
) -> None:
    job = new_job(**options)
    first = new_job()
    await storage.jobs.enqueue([first])
    assert await storage.jobs.enqueue([job]) == [EnqueueOutcome(job.id)]
    alone = await contents(client)
    await client.flushall()
    await storage.jobs.enqueue([first])
    # The second one is a repeat, which changes nothing.
    await storage.jobs.enqueue([job, job])
    assert await contents(client) == alone
    assert (await get_job(storage, job.id)).priority == job.priority


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "enqueue_one"),
        ({"tags": ("a",)}, "enqueue"),
        ({"unique": Unique("k", "replace")}, "enqueue_keyed"),
    ],
)
async def test_each_kind_of_job_takes_one_round_trip(
    storage: Storage, options: dict[str, Any], name: str
) -> None:
    await enqueue_one(storage)
    await enqueue_one(storage, **options)
    with asked() as seen:
        await enqueue_one(storage, **options)
    assert seen == {f"EVALSHA {script(name).sha}": 1}


async def test_a_repeat_is_told_from_another_content(storage: Storage) -> None:
    await enqueue_one(storage)
    job = new_job(payload='{"a":1}')
    for _ in range(2):
        assert await storage.jobs.enqueue([job]) == [EnqueueOutcome(job.id)]
    for other in ({"payload": '{"a":2}'}, {"queue": "other", "payload": '{"a":2}'}):
        with pytest.raises(Conflict):
            await storage.jobs.enqueue([new_job(id=job.id, **other)])
    assert (await counters(storage))["enqueued"] == 2


async def test_a_repeat_does_not_bring_back_a_job_that_has_ended(storage: Storage) -> None:
    lease = await register(storage)
    job = new_job()
    await storage.jobs.enqueue([job])
    await finish(storage, await claim_one(storage, lease), done())
    assert await storage.jobs.enqueue([job]) == [EnqueueOutcome(job.id)]
    assert (await get_job(storage, job.id)).status == JobStatus.DONE


async def test_the_first_job_of_a_queue_makes_the_queue(storage: Storage, client: Redis) -> None:
    job = new_job(id=new_job_id(), queue="fresh")
    await storage.jobs.enqueue([job])
    assert [queue.name for queue in await storage.config.queues()] == ["fresh"]
    assert (await get_job(storage, job.id)).queue == "fresh"


async def test_it_rings_for_its_queue(storage: Storage) -> None:
    await enqueue_one(storage)
    await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(0))
    await enqueue_one(storage)
    wake = await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(seconds=10))
    assert QUEUE in wake.queues
