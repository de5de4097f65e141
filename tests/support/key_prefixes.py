"""A key prefix per folder on a Redis server or cluster."""

import asyncio
import atexit
import secrets
from functools import cache
from pathlib import Path
from typing import Any

from redis import Redis as SyncRedis
from redis import RedisCluster as SyncCluster
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support import servers

_RUN = f"forge-test-{secrets.token_hex(4)}"
_LONGEST_LOOK_S = 60
"""A look at all keys of a test is one script, also of a test of 100,000 jobs."""
_made: dict[tuple[str, Path], str] = {}
_FORGET = """
local cursor = "0"
repeat
    local page = redis.call("SCAN", cursor, "MATCH", ARGV[1], "COUNT", 1000)
    cursor = page[1]
    for _, key in ipairs(page[2]) do redis.call("UNLINK", key) end
until cursor == "0"
"""


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
    if prefix is not None:
        run: Any = looker_of(backend).execute_command
        options = {"target_nodes": RedisCluster.PRIMARIES} if backend != "redis" else {}
        run("EVAL", _FORGET, 0, f"*{prefix}*", **options)


@cache
def looker_of(backend: str) -> "SyncRedis | SyncCluster":
    """A client of the server itself, kept for what is looked at after each test."""
    url = _server(backend).replace("+cluster", "")
    made: SyncRedis | SyncCluster
    if backend == "redis":
        made = SyncRedis.from_url(url, socket_timeout=_LONGEST_LOOK_S)
    else:
        made = SyncCluster.from_url(url.partition(",")[0], socket_timeout=_LONGEST_LOOK_S)
    atexit.register(made.close)
    return made


def client_of(backend: str) -> "Redis | RedisCluster":
    """Return a client of the server, for looking at keys. Replies are bytes."""
    url = _server(backend).replace("+cluster", "")
    if backend == "redis":
        return Redis.from_url(url, retry=Retry(NoBackoff(), 0))
    first_node = url.partition(",")[0]
    return RedisCluster.from_url(first_node, retry=Retry(NoBackoff(), 0))


def _server(backend: str) -> str:
    return servers.redis_url() if backend == "redis" else servers.redis_cluster_url()
