"""Costs of calls on a Redis server, counted in commands: times would depend on the machine."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from redis.asyncio import Redis

from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.model.unique.keys import REPLACEMENT_KEPT, REPLACING, UniqueMode
from forge_jobs.storage.elsewhere import KnownElsewhere
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.scripts import script
from forge_jobs.storage.redis.keys import OLD_HASHES
from forge_jobs.testing.servers import RedisServer
from tests.support.factories import (
    DAY,
    KIND,
    QUEUE,
    claim,
    dead,
    done,
    enqueue_one,
    held,
    new_job,
    register,
)
from tests.support.keyed import MINUTE, keyed

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=1)


@dataclass
class Cost:
    """Commands since the last reset.

    :param calls: those that a client sent to run a script
    :param inner: those that scripts ran
    """

    calls: int
    inner: int


class Meter:
    """Counts what one server does."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def reset(self) -> None:
        await self._client.config_resetstat()

    async def read(self) -> Cost:
        stats: dict[str, Any] = await self._client.info("commandstats")
        counts = {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}
        calls = counts.pop("evalsha", 0)
        for name in ("config|resetstat", "info"):
            counts.pop(name, None)
        return Cost(calls, sum(counts.values()))


@pytest.fixture
async def meter(server: RedisServer) -> AsyncGenerator[Meter]:
    async with aclosing(Redis.from_url(server.url)) as client:
        await client.flushall()
        yield Meter(client)


@pytest.fixture
async def storage(server: RedisServer, meter: Meter) -> AsyncGenerator[Storage]:
    async with await open_storage(server.url) as made:
        yield made


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    lease = await register(storage, lease_for=LONG)
    # The scripts are known to the server from here on.
    await enqueue_one(storage)
    [claimed] = await claim(storage, lease)
    await storage.jobs.exchange(QUEUE, [Finalization(claimed.claim, done())], demand(1), lease)
    return lease


def demand(limit: int) -> Demand:
    workers = tuple(f"w{number}" for number in range(limit))
    return Demand(worker_ids=workers, limit=limit, kinds=frozenset({KIND}))


FUNCTIONS = {"enqueue_one": 12, "enqueue": 59, "enqueue_keyed": 99, "exchange": 99, "beat": 36}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_run_of_a_script_makes_few_functions(name: str) -> None:
    # Each run makes all of them anew. 27 are about 24 microseconds of the server.
    assert len(re.findall(r"\bfunction\b", script(name).text)) <= FUNCTIONS[name]


async def test_jobs_without_options_travel_in_few_bytes(
    storage: Storage, lease: PodLease, server: RedisServer
) -> None:
    size, jobs = 100, storage.jobs
    # The script is known to the server from here on.
    await jobs.enqueue([new_job(), new_job()])
    await jobs.exchange(QUEUE, [], demand(2), lease)
    async with aclosing(Redis.from_url(server.url)) as client:

        async def travelled() -> int:
            stats = await client.info("stats")
            return int(stats["total_net_input_bytes"])

        counts = [await travelled()]
        await jobs.enqueue([new_job() for _ in range(size)])
        counts.append(await travelled())
        taken = (await jobs.exchange(QUEUE, [], demand(size), lease)).claimed
        counts.append(await travelled())
        await jobs.finalize([Finalization(one.claim, done()) for one in taken])
        counts.append(await travelled())
    stored, claimed, ended = ((later - before) / size for before, later in pairwise(counts))
    # 72, 7 and 40 were counted.
    assert stored <= 76
    assert claimed <= 9
    assert ended <= 43


async def test_a_letter_costs_few_commands_and_only_where_one_is_asked_for(
    storage: Storage, lease: PodLease, meter: Meter
) -> None:
    size = 100
    used: list[Cost] = []
    for to in ("", "dead", ""):
        await storage.config.set_queue(QUEUE, QueueChange(dead_letter=to))
        await storage.jobs.enqueue([new_job() for _ in range(size)])
        taken = await storage.jobs.exchange(QUEUE, [], demand(size), lease)
        await meter.reset()
        ends = [Finalization(each.claim, dead(error=None)) for each in taken.claimed]
        assert len(await storage.jobs.finalize(ends)) == size
        used.append(await meter.read())
    without, with_letters, again = used
    # Per end one hash, read and written, as of any other end.
    assert max(without.inner, again.inner) <= 2 * size + 20
    assert with_letters.calls == without.calls == 1
    # Per letter the job and the errors, the hash and two lists.
    assert with_letters.inner <= without.inner + 8 * size


@pytest.mark.parametrize("size", [1, 10, 100, 200])
async def test_a_batch_is_one_round_trip_and_few_commands_per_job(
    storage: Storage, lease: PodLease, meter: Meter, size: int
) -> None:
    await meter.reset()
    await storage.jobs.enqueue([new_job() for _ in range(size)])
    stored = await meter.read()
    # Per job its hash, per hash of locators a read and a write. The rest is per batch.
    assert stored.calls == 1
    assert stored.inner <= size + 2 * OLD_HASHES + 12

    await meter.reset()
    first = await storage.jobs.exchange(QUEUE, [], demand(size), lease)
    taken = await meter.read()
    assert len(first.claimed) == size
    # Per job one hash, read and written.
    assert taken.calls == 1
    assert taken.inner <= 2 * size + 18

    await storage.jobs.enqueue([new_job() for _ in range(size)])
    ends = [Finalization(each.claim, done()) for each in first.claimed]
    await meter.reset()
    second = await storage.jobs.exchange(QUEUE, ends, demand(size), lease)
    both = await meter.read()
    assert len(second.claimed) == size
    # Per end one hash, read and written.
    assert both.calls == 1
    assert both.inner <= 4 * size + 28


async def test_a_claim_costs_the_same_whatever_stands_in_front(
    storage: Storage, lease: PodLease, meter: Meter
) -> None:
    await register(storage, kinds=("other",), lease_for=LONG)

    async def cost() -> int:
        # The less of two: what a connection says as it is made counts too.
        costs = []
        for _ in range(2):
            await storage.jobs.enqueue([new_job(priority=5) for _ in range(10)])
            await meter.reset()
            assert len(await claim(storage, lease, limit=10)) == 10
            costs.append((await meter.read()).inner)
        return min(costs)

    async def put_in_front(number: int) -> None:
        for priority in (-1, 0):
            await storage.jobs.enqueue(
                [new_job(kind="other", priority=priority) for _ in range(number)]
                + [new_job(priority=priority, delay=DAY) for _ in range(number)]
                + [new_job(kind="nobody", priority=priority) for _ in range(number)]
            )
        await claim(storage, lease, limit=1)
        assert (await storage.jobs.counts())[QUEUE].held > 0

    await put_in_front(1)
    one_of_each = await cost()
    await put_in_front(300)
    assert (await storage.jobs.counts())[QUEUE].held == 602
    assert await cost() == one_of_each


@pytest.mark.parametrize("mode", ["keep", "error", "replace", "cooldown", "debounce", "keep-last"])
async def test_a_key_costs_few_commands_in_every_mode(
    storage: Storage, lease: PodLease, meter: Meter, mode: UniqueMode
) -> None:
    keys = [f"k{number}" for number in range(100)]
    await meter.reset()
    await storage.jobs.enqueue([keyed(mode, 1, key) for key in keys])
    stored = await meter.read()
    # Per job its hash, the key, who holds the key, the list of the key, and perhaps a window.
    assert (stored.calls, stored.inner <= 100 * 7 + 2 * OLD_HASHES + 12) == (1, True)
    if mode == "error":
        return
    await meter.reset()
    await storage.jobs.enqueue([keyed(mode, 2, key) for key in keys])
    met = await meter.read()
    # Who holds the key. A change reads and writes the hash, and moves the job in three lists.
    each = 15 if mode in REPLACING else 1
    assert (met.calls, met.inner <= 100 * each + 2 * OLD_HASHES + 12) == (1, True)


async def test_what_is_known_of_keys_ends_by_itself(storage: Storage, server: RedisServer) -> None:
    await storage.jobs.enqueue([keyed("cooldown", key="c"), keyed("replace", key="r")])
    request = keyed("replace", 2, key="r")
    await storage.jobs.enqueue([request])
    ends = {"cool:c": MINUTE, f"merged:{request.id}": REPLACEMENT_KEPT}
    async with aclosing(Redis.from_url(server.url)) as client:
        for name, length in ends.items():
            [key] = await client.keys(f"*:{name}")
            left = timedelta(milliseconds=await client.pttl(key))
            assert length < left <= length + MINUTE


async def test_a_beat_is_one_round_trip_however_many_queues_it_is_for(
    storage: Storage, meter: Meter
) -> None:
    queues = [f"q{number}" for number in range(10)]
    lease = await register(storage, queues=queues, lease_for=LONG)
    for queue in queues:
        await storage.jobs.enqueue([new_job(queue=queue) for _ in range(3)])
    claims = [
        held(each, "w") for queue in queues for each in await claim(storage, lease, queue=queue)
    ]
    await storage.jobs.heartbeat(lease, claims, LONG)
    await meter.reset()
    beat = await storage.jobs.heartbeat(lease, claims, LONG)
    cost = await meter.read()
    assert (len(beat.queues), len(beat.claims), beat.unknown) == (10, 10, ())
    assert cost.calls == 1
    assert cost.inner <= 10 * 15


async def test_a_claim_looks_at_each_expired_job_once(
    storage: Storage, lease: PodLease, meter: Meter
) -> None:
    now = await storage.cron.now()
    await storage.jobs.enqueue([new_job(expires_at=now) for _ in range(500)])
    job_id = await enqueue_one(storage)
    await meter.reset()
    [claimed] = await claim(storage, lease)
    assert claimed.claim.job_id == job_id
    assert (await meter.read()).inner <= 500 + 30


async def test_a_claim_costs_its_jobs_and_a_look_per_kind(
    storage: Storage, meter: Meter, server: RedisServer
) -> None:
    kinds = [f"kind.{number}" for number in range(100)]
    lease = await register(storage, kinds=kinds, lease_for=LONG)
    requests = [new_job(kind=kinds[number % 100]) for number in range(5_000)]
    await storage.jobs.enqueue(requests)
    async with aclosing(Redis.from_url(server.url)) as client:
        await meter.reset()
        sent = (await client.info("stats"))["total_net_output_bytes"]
        claimed = await claim(storage, lease, limit=100, kinds=kinds)
        cost = await meter.read()
        assert [each.claim.job_id for each in claimed] == [each.id for each in requests[:100]]
        assert (await client.info("stats"))["total_net_output_bytes"] - sent < 60_000
    # Per job one hash, read and written. Per kind one line, looked at, read and left.
    assert cost.inner <= 2 * 100 + 4 * 100 + 20


async def test_a_claim_does_not_read_what_pods_say_of_themselves(
    storage: Storage, meter: Meter, server: RedisServer
) -> None:
    database: Any = storage.jobs._database  # type: ignore[attr-defined]
    database.known_elsewhere = KnownElsewhere(elapsed=lambda: 0.0)
    for number in range(200):
        kinds = [f"pod{number}.kind{each}" for each in range(50)]
        await register(storage, kinds=["other", *kinds], lease_for=LONG)
    lease = await register(storage, lease_for=LONG)
    await storage.jobs.enqueue([new_job(kind="other") for _ in range(10)])
    await storage.jobs.enqueue([new_job() for _ in range(2)])
    async with aclosing(Redis.from_url(server.url)) as client:
        sent = (await client.info("stats"))["total_net_output_bytes"]
        for calls in (2, 1):
            await meter.reset()
            assert len(await claim(storage, lease)) == 1
            assert (await meter.read()).calls == calls
        assert (await client.info("stats"))["total_net_output_bytes"] - sent < 10_000


async def test_a_claim_clears_expired_jobs_away_that_it_cannot_pass(
    storage: Storage, lease: PodLease
) -> None:
    now = await storage.cron.now()
    for _ in range(11):
        await storage.jobs.enqueue([new_job(expires_at=now) for _ in range(500)])
    job_id = await enqueue_one(storage)
    first = await storage.jobs.exchange(QUEUE, [], demand(1), lease)
    assert (first.claimed, first.next_due_in) == ((), timedelta(0))
    second = await storage.jobs.exchange(QUEUE, [], demand(1), lease)
    assert [each.claim.job_id for each in second.claimed] == [job_id]
