"""A store under an ordinary role with settings of its own, in a schema of any name."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from urllib.parse import quote

import pytest
from sqlalchemy import text

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.base.transaction import Tx
from tests.support.factories import QUEUE, enqueue_one, new_job
from tests.support.postgres import a_role, database_of, raw, sleeping, with_options
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio


@pytest.fixture
async def its_url(url: str) -> AsyncGenerator[str]:
    """Of a role whose sessions are set up as badly as they can be."""
    async with a_role(url, "word") as role_url:
        role = role_url.partition("//")[2].partition(":")[0]
        async with raw(url) as connection:
            for setting in (
                "statement_timeout = 100",
                "lock_timeout = 1",
                "idle_in_transaction_session_timeout = 100",
                "default_transaction_isolation = 'serializable'",
                "default_transaction_read_only = on",
                "default_transaction_deferrable = on",
                "search_path = nowhere, pg_temp",
                "standard_conforming_strings = off",
                "datestyle = 'German'",
                "intervalstyle = 'sql_standard'",
                "timezone = 'Asia/Kathmandu'",
                "extra_float_digits = -15",
                "bytea_output = 'escape'",
            ):
                await connection.execute(f"ALTER ROLE {role} SET {setting}")
        yield role_url


@pytest.mark.daily("quotes")
@pytest.mark.parametrize(
    "schema", ["plain", 'with "quotes"; DROP TABLE x --', "100% : :name $1", "Ä" * 31]
)
async def test_a_fleet_of_one_works_in_any_schema_under_any_settings(
    its_url: str, schema: str
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("double")
    async def double(value: int) -> int:
        return 2 * value

    there = with_options(its_url, schema=quote(schema, safe=""))
    async with (
        await open_storage(there) as storage,
        a_runtime(storage, handlers, 2).start() as handle,
    ):
        made = [await handle.enqueue(double.request(n)) for n in range(10)]
        for n, outcome in enumerate(made):
            assert (await ended(storage, outcome.job_id)).result == str(2 * n)
        assert storage.health().wakes


async def test_a_schema_name_that_the_database_keeps_for_itself_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="pg_"):
        await open_storage(with_options(url, schema="pg_jobs"))


async def test_limits_of_the_role_do_not_cut_our_calls_off(its_url: str) -> None:
    async with await open_storage(with_options(its_url, schema="its_own")) as storage:
        database = database_of(storage)

        def script(tx: Tx) -> str:
            schema: str = tx.execute(text("SELECT current_schema()")).scalar_one()
            return schema

        assert await database.write(sleeping(0.3, script)) == "its_own"
        assert await database.read(sleeping(0.3, script)) == "its_own"


async def test_two_schemas_of_one_database_are_two_stores(its_url: str) -> None:
    mine = frozenset({QUEUE})
    async with (
        await open_storage(with_options(its_url, schema="one")) as one,
        await open_storage(with_options(its_url, schema="two")) as two,
    ):
        assert one.jobs.store_id != two.jobs.store_id
        while await two.jobs.wait_for_work(mine, timedelta(seconds=0.1)):
            pass
        job_id = await enqueue_one(one)
        assert not await two.jobs.wait_for_work(mine, timedelta(seconds=0.1))
        assert await two.jobs.get([job_id]) == {}
        assert await two.jobs.enqueue([new_job(id=job_id)])
