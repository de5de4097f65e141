"""PgBouncer as used by the other tests of this folder."""

import asyncpg
import pytest

from forge_jobs.testing.servers import PgBouncer
from tests.support.servers import a_postgres

pytestmark = pytest.mark.anyio


async def connect(bouncer: PgBouncer) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(bouncer.url, statement_cache_size=0)


async def test_in_transaction_mode_two_clients_share_one_connection() -> None:
    with a_postgres() as postgres, PgBouncer(postgres, settings={"default_pool_size": "1"}) as way:
        one, other = await connect(way), await connect(way)
        try:
            first = await one.fetchval("SELECT pg_backend_pid()")
            assert await other.fetchval("SELECT pg_backend_pid()") == first
        finally:
            await one.close()
            await other.close()


async def test_it_comes_back_on_its_port() -> None:
    with a_postgres() as postgres, PgBouncer(postgres, "session") as way:
        port = way.port
        way.restart()
        assert way.port == port
        connection = await connect(way)
        assert await connection.fetchval("SHOW server_version_num")
        await connection.close()
