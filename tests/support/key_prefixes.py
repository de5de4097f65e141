"""One key prefix per folder on a Redis server or cluster."""

import asyncio
import atexit
import secrets
from contextlib import aclosing
from pathlib import Path

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support import servers

_RUN = f"forge-test-{secrets.token_hex(4)}"
_made: dict[tuple[str, Path], str] = {}


def url_of(backend: str, folder: Path) -> str:
    """The URL of the folder's keys."""
    if (backend, folder) not in _made:
        if not servers.are_ours(backend):
            atexit.register(lambda: asyncio.run(forget(backend, folder)))
        _made[backend, folder] = f"{_RUN}-{secrets.token_hex(6)}"
    url = _server(backend)
    return f"{url}{'&' if '?' in url else '?'}prefix={_made[backend, folder]}"


async def forget(backend: str, folder: Path) -> None:
    """Delete the folder's keys."""
    prefix = _made.pop((backend, folder), None)
    if prefix is None:
        return
    async with aclosing(client_of(backend)) as client:
        pipeline = client.pipeline(transaction=False)
        async for key in client.scan_iter(match=f"*{prefix}*", count=1000):
            pipeline.execute_command("UNLINK", key)
        await pipeline.execute()


def client_of(backend: str) -> "Redis | RedisCluster":
    """A client of the server itself, for looking at keys; replies are bytes."""
    url = _server(backend).replace("+cluster", "")
    if backend == "redis":
        return Redis.from_url(url, retry=Retry(NoBackoff(), 0))
    first_node = url.partition(",")[0]
    return RedisCluster.from_url(first_node, retry=Retry(NoBackoff(), 0))


def _server(backend: str) -> str:
    return servers.redis_url() if backend == "redis" else servers.redis_cluster_url()
