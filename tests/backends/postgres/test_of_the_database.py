"""The database itself: encoding, row level security, connected sessions."""

import pytest

from forge_jobs.errors import StorageError
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres.short import bulk
from tests.support.factories import new_job
from tests.support.postgres import as_user, raw

pytestmark = pytest.mark.anyio


async def test_a_database_that_is_not_utf_8_is_refused(url: str) -> None:
    async with raw(url) as connection:
        await connection.execute(
            "CREATE DATABASE forge_test_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        )
        try:
            place = url.rpartition("/")[0]
            with pytest.raises(StorageError, match=r"encoded in LATIN1.*ENCODING 'UTF8'"):
                await open_storage(f"{place}/forge_test_latin")
        finally:
            await connection.execute("DROP DATABASE forge_test_latin WITH (FORCE)")


async def test_connections_say_whose_they_are(storage: Storage, url: str) -> None:
    names = (
        "SELECT DISTINCT application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with raw(url) as connection:
        assert [row[0] for row in await connection.fetch(names)] == ["forge_jobs"]
        async with await open_storage(f"{url}?application_name=mailer"):
            assert "mailer" in {row[0] for row in await connection.fetch(names)}


async def test_under_row_level_security_many_are_not_copied(
    storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "FEW", 1)
    async with raw(url) as connection:
        await connection.execute(
            "CREATE ROLE forge_test_held LOGIN PASSWORD 'held'; "
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO forge_test_held; "
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO forge_test_held; "
            "ALTER TABLE forge_jobs ENABLE ROW LEVEL SECURITY; "
            "CREATE POLICY all_of_them ON forge_jobs USING (true) WITH CHECK (true)"
        )
    try:
        async with await open_storage(as_user(url, "forge_test_held", "held")) as opened:
            await opened.jobs.enqueue([new_job()])
            outcomes = await opened.jobs.enqueue([new_job() for _ in range(5)])
        found = await storage.jobs.get([each.job_id for each in outcomes])
        assert len(found) == 5
    finally:
        async with raw(url) as connection:
            await connection.execute(
                "DROP OWNED BY forge_test_held; DROP ROLE forge_test_held; "
                "DROP POLICY all_of_them ON forge_jobs; "
                "ALTER TABLE forge_jobs DISABLE ROW LEVEL SECURITY"
            )
