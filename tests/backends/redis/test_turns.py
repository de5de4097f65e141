"""Limits with a share on Redis: how many of the jobs on hold a claim reads."""

from datetime import timedelta

import pytest
from redis.asyncio import Redis

from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, claim, new_job, register
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio

NAME = "tests.tenants"
WANTED, MANY, DEEP = 20, 100, 10
LAST = "that-was-all"


async def ranges_of_a_claim(storage: Storage, client: Redis) -> list[tuple[int, int]]:
    """Return the numbers of the first and the last one of each part of a list of jobs on hold that
    the scripts of a claim read."""
    lease = await register(storage, lease_for=timedelta(hours=1))
    begin = f"ZRANGE {KEYS.queue(QUEUE)}:parked:"
    found: list[tuple[int, int]] = []
    async with client.monitor() as monitor:
        assert len(await claim(storage, lease, limit=WANTED)) == WANTED
        await client.echo(LAST)
        async for each in monitor.listen():
            command: str = each["command"]
            if command.startswith(begin):
                _, first, last = command.rsplit(maxsplit=2)
                found.append((int(first), int(last)))
            if LAST in command:
                break
    return found


async def test_a_claim_in_turn_reads_few_jobs_of_each_key(storage: Storage, client: Redis) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: MAX_WORKERS_LIMIT}, {NAME: 1})
    keys = [f"k{number}" for number in range(MANY)]
    for _ in range(DEEP):
        await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key=key) for key in keys])
    found = await ranges_of_a_claim(storage, client)
    assert sum(last - first + 1 for first, last in found) <= MANY + WANTED
    assert len(found) >= MANY
