"""The servers of this test process: started on first use, gone when the process ends.

``FORGE_TEST_POSTGRES_URL``, ``FORGE_TEST_REDIS_URL`` and ``FORGE_TEST_REDIS_CLUSTER_URL`` name
servers that run already. ``FORGE_TEST_PG_BIN`` (a folder) and ``FORGE_TEST_REDIS_SERVER`` name
programs to start. Else the wheels of the extra ``dev`` are started.
"""

import atexit
import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from forge_jobs.testing.servers import PostgresServer, RedisCluster, RedisServer
from forge_jobs.testing.standby import PostgresStandby

T = TypeVar("T", PostgresServer, RedisServer, RedisCluster)

_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster-starter")


@cache
def postgres_url() -> str:
    """A PostgreSQL server, by the URL of a superuser."""
    return os.environ.get("FORGE_TEST_POSTGRES_URL") or _kept(a_postgres()).url


@cache
def redis_url() -> str:
    """A Redis or Valkey server."""
    return os.environ.get("FORGE_TEST_REDIS_URL") or _kept(a_redis()).url


def redis_cluster_url() -> str:
    """Start a cluster of three Redis or Valkey servers. Takes two seconds unless begun before."""
    return os.environ.get("FORGE_TEST_REDIS_CLUSTER_URL") or begin_redis_cluster().result().url


@cache
def begin_redis_cluster() -> Future[RedisCluster]:
    """Start the cluster in the background, so that other tests run meanwhile."""
    return _starter.submit(_kept, a_redis_cluster())


def are_ours(backend: str) -> bool:
    """Return whether the servers of ``backend`` are thrown away with all that tests leave."""
    return f"FORGE_TEST_{backend.upper().replace('-', '_')}_URL" not in os.environ


def a_postgres(**options: Any) -> PostgresServer:
    """Make a PostgreSQL server of the chosen programs, which the test starts and closes."""
    return PostgresServer(programs=_chosen("FORGE_TEST_PG_BIN"), **options)


def a_standby(primary: PostgresServer) -> PostgresStandby:
    """Make a hot standby of a running server, which the test starts and closes."""
    return PostgresStandby(primary)


def a_redis(**options: Any) -> RedisServer:
    """Make a Redis server of the chosen program, which the test starts and closes."""
    return RedisServer(program=_chosen("FORGE_TEST_REDIS_SERVER"), **options)


def a_redis_cluster(**options: Any) -> RedisCluster:
    """Make a cluster of the chosen program, which the test starts and closes."""
    return RedisCluster(program=_chosen("FORGE_TEST_REDIS_SERVER"), **options)


def chosen_redis() -> Path | None:
    """Return the program that tests of Redis start. None: the program of the wheel."""
    return _chosen("FORGE_TEST_REDIS_SERVER")


def _chosen(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


def _kept(server: T) -> T:
    server.start()
    atexit.register(server.close)
    return server
