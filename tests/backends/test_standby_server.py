"""The throw-away standby: repeats the primary, refuses writes, and takes them once promoted."""

import asyncpg
import pytest

from tests.support.postgres import raw
from tests.support.servers import a_postgres, a_standby
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]


async def test_a_standby_repeats_its_primary_and_takes_its_place() -> None:
    with a_postgres() as primary, a_standby(primary) as standby:
        async with raw(primary.url) as connection:
            await connection.execute("CREATE TABLE here AS SELECT 7 AS value")
        async with raw(standby.url) as connection:
            there = "SELECT to_regclass('here') IS NOT NULL"
            await wait_until(lambda: connection.fetchval(there), description="it has caught up")
            with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
                await connection.execute("INSERT INTO here VALUES (8)")
            primary.kill()
            standby.promote()
            await connection.execute("INSERT INTO here VALUES (8)")
        standby.restart()
        async with raw(standby.url) as connection:
            assert await connection.fetchval("SELECT sum(value) FROM here") == 15
