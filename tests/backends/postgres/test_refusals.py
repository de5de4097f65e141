"""PostgreSQL refuses for seconds: a login, a right, a table, one row, an error without a name."""

from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import StorageRefused
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.postgres import a_role, raw, with_options
from tests.support.refusals import is_kept_apart, is_ridden_out

pytestmark = pytest.mark.anyio

SCHEMA = "its_own"


@pytest.fixture
async def role_url(url: str) -> AsyncGenerator[str]:
    """Of an ordinary role."""
    async with a_role(url, "word") as made:
        yield made


@pytest.fixture
def role(role_url: str) -> str:
    return str(urlsplit(role_url).username)


@pytest.fixture
async def storage(role_url: str) -> AsyncGenerator[Storage]:
    """A store that belongs to the role."""
    async with await open_storage(with_options(role_url, schema=SCHEMA)) as opened:
        yield opened


@pytest.fixture
async def admin(url: str, storage: Storage) -> AsyncGenerator[Any]:
    async with raw(url) as connection:
        yield connection


@pytest.mark.daily("password", "table")
@pytest.mark.parametrize(
    ("begin", "end", "named"),
    [
        (
            "ALTER ROLE {role} PASSWORD 'another'",
            "ALTER ROLE {role} PASSWORD 'word'",
            "the database refused the login",
        ),
        ("ALTER ROLE {role} NOLOGIN", "ALTER ROLE {role} LOGIN", "the database refused the login"),
        (
            "REVOKE INSERT, UPDATE ON {schema}.forge_jobs FROM {role}",
            "GRANT INSERT, UPDATE ON {schema}.forge_jobs TO {role}",
            "lacks a privilege: INSERT, UPDATE on forge_jobs",
        ),
        (
            "ALTER TABLE {schema}.forge_jobs RENAME TO elsewhere",
            "ALTER TABLE {schema}.elsewhere RENAME TO forge_jobs",
            "the tables of the store are missing",
        ),
        (
            "ALTER SCHEMA {schema} RENAME TO elsewhere",
            "ALTER SCHEMA elsewhere RENAME TO {schema}",
            "the store refuses",
        ),
    ],
    ids=["password", "nologin", "right", "table", "schema"],
)
async def test_what_is_refused_to_all_is_waited_out(
    storage: Storage,
    admin: Any,
    role: str,
    begin: str,
    end: str,
    named: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def step(statement: str) -> None:
        await admin.execute(statement.format(role=role, schema=SCHEMA))
        # Who is connected stays so, but for this.
        await admin.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        )

    await is_ridden_out(storage, lambda: step(begin), lambda: step(end), named, caplog)


_TRIGGER = """
CREATE FUNCTION {schema}.refuses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not this one' USING ERRCODE = '{code}';
END $$;
CREATE TRIGGER refuses BEFORE UPDATE ON {schema}.forge_jobs FOR EACH ROW
WHEN (OLD.id = '{job_id}' AND NEW.status = 'done') EXECUTE FUNCTION {schema}.refuses()
"""


@pytest.mark.daily("P0001", "42501")
@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("P0001", "(SQLSTATE P0001)"),
        ("ZZ999", "(SQLSTATE ZZ999)"),
        ("54000", "(SQLSTATE 54000)"),
        ("42501", "the role of the URL lacks a privilege"),
        ("57014", "the database cancelled a statement that took too long"),
        ("XX000", "(SQLSTATE XX000)"),
    ],
)
async def test_an_end_that_a_trigger_refuses_is_kept_and_in_nobodys_way(
    storage: Storage, admin: Any, code: str, named: str
) -> None:
    async def begin(job_id: JobId) -> None:
        await admin.execute(_TRIGGER.format(schema=SCHEMA, code=code, job_id=job_id))

    async def end() -> None:
        await admin.execute(f"DROP TRIGGER refuses ON {SCHEMA}.forge_jobs")

    await is_kept_apart(storage, begin, end, named)


async def test_an_end_that_is_too_long_for_an_index_is_kept_and_in_nobodys_way(
    storage: Storage, admin: Any
) -> None:
    async def begin(job_id: JobId) -> None:
        # Of what does not compress, a value of an index may have 2,704 bytes.
        await admin.execute(
            f"CREATE FUNCTION {SCHEMA}.long_one(id text, result text) RETURNS text IMMUTABLE"
            " LANGUAGE sql AS $$ SELECT CASE WHEN result IS NOT NULL AND"
            f" id = '{job_id}' THEN (SELECT string_agg(md5(n::text), '') FROM"
            " generate_series(1, 1000) AS n) END $$"
        )
        await admin.execute(
            f"CREATE INDEX too_long ON {SCHEMA}.forge_jobs ({SCHEMA}.long_one(id, result))"
        )

    async def end() -> None:
        await admin.execute(f"DROP INDEX {SCHEMA}.too_long")

    await is_kept_apart(storage, begin, end, "(SQLSTATE 54000)")


async def test_a_client_is_told_of_a_refusal_that_lasts(
    storage: Storage, admin: Any, role: str
) -> None:
    await admin.execute(f"REVOKE INSERT ON {SCHEMA}.forge_jobs FROM {role}")
    async with JobClient(storage, repeat_for=0.5) as client:
        with pytest.raises(StorageRefused, match="INSERT on forge_jobs; GRANT it"):
            await client.enqueue(EnqueueRequest("any"))
        await admin.execute(f"GRANT INSERT ON {SCHEMA}.forge_jobs TO {role}")
        await client.enqueue(EnqueueRequest("any"))
