"""Errors of missing rights name the right, and leave the store as it was."""

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import pytest

from forge_jobs.errors import StorageRefused
from forge_jobs.operating.health.examining import examine
from forge_jobs.operating.health.findings import Finding
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.opening import open_storage
from tests.support.factories import claim_one, done, enqueue_one, finish, register
from tests.support.postgres import a_role, raw, with_options

pytestmark = pytest.mark.anyio


@pytest.fixture
async def its_url(url: str) -> AsyncGenerator[str]:
    """Of a role that may connect, and create nothing."""
    async with a_role(url, "word") as role_url:
        role = urlsplit(role_url).username
        async with raw(url) as connection:
            await connection.execute(
                f"REVOKE CREATE ON DATABASE {urlsplit(url).path[1:]} FROM {role}"
            )
        yield role_url


async def refused(url: str, which: str) -> None:
    with pytest.raises(StorageRefused, match=f"lacks a privilege: {which}; GRANT") as found:
        await open_storage(url)
    assert found.value.__suppress_context__
    assert not any(word in str(found.value) for word in ("role_", "127.0", "permission"))


async def test_a_role_that_may_not_create_the_schema_is_told_so(its_url: str) -> None:
    await refused(with_options(its_url, schema="its_own"), "CREATE on the database")


async def test_a_role_that_may_not_read_the_tables_of_another_is_told_so(its_url: str) -> None:
    all_of_them = (
        "INSERT, UPDATE, DELETE on forge_action_jobs, forge_action_parts, forge_actions and .*; "
    )
    await refused(its_url, f".*{all_of_them}.*USAGE on forge_events_id_seq, .*")


async def test_a_role_works_on_the_tables_of_another_that_it_was_granted(
    url: str, its_url: str
) -> None:
    role = urlsplit(its_url).username
    async with raw(url) as connection:
        await connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + str(role)
        )
        await connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    async with await open_storage(its_url) as storage:
        lease = await register(storage)
        await enqueue_one(storage)
        assert await finish(storage, await claim_one(storage, lease), done())
        await storage.jobs.roll_up(100)
        await storage.jobs.cleanup(100)
        report = await storage.report()
    # To list the files of the log is the right of who monitors the server.
    assert report.wal_bytes is None
    assert (report.size_bytes or 0) > 0
    assert report.dead_rows is not None
    assert report.schema_version


async def test_a_role_that_may_only_read_reads_and_is_told_why_it_cannot_write(
    url: str, its_url: str
) -> None:
    role = urlsplit(its_url).username
    async with raw(url) as connection:
        await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    async with await open_storage(its_url) as storage:
        assert await storage.jobs.counts() == {}
        with pytest.raises(StorageRefused, match="privilege: INSERT, UPDATE, DELETE on"):
            await enqueue_one(storage)
    async with raw(url) as connection:
        await connection.execute(
            f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        await connection.execute(f"REVOKE INSERT ON forge_jobs FROM {role}")
        await connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    async with await open_storage(its_url) as storage:
        with pytest.raises(StorageRefused, match="privilege: INSERT on forge_jobs; GRANT it"):
            await enqueue_one(storage)


async def test_the_doctor_of_a_role_that_may_only_read_names_the_grants(
    url: str, its_url: str
) -> None:
    role = urlsplit(its_url).username
    async with raw(url) as connection:
        await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        found = await rights_of(its_url)
        assert (found.state, found.text.count("GRANT")) == ("fail", 2)
        for grant in found.text.partition("; run ")[2].partition("; without")[0].split("; "):
            await connection.execute(grant.replace("TO ROLE", f"TO {role}"))
    assert (await rights_of(its_url)).state == "ok"
    async with await open_storage(its_url) as storage:
        await enqueue_one(storage)


@pytest.mark.parametrize("has_others", [False, True])
async def test_a_grant_is_of_the_stores_tables_and_of_no_other(
    url: str, its_url: str, has_others: bool
) -> None:
    role = urlsplit(its_url).username
    async with raw(url) as connection:
        await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        if has_others:
            await connection.execute("CREATE TABLE of_another (id int)")
        text = (await rights_of(its_url)).text
        if has_others:
            await connection.execute("DROP TABLE of_another")
    assert ("ON ALL TABLES IN SCHEMA public TO ROLE" in text) is not has_others
    assert ("public.forge_jobs, " in text) is has_others
    assert "of_another" not in text


async def test_the_doctor_names_the_one_privilege_or_function_that_is_missing(
    url: str, its_url: str
) -> None:
    role = urlsplit(its_url).username
    async with raw(url) as connection:
        await connection.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        await connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
        assert (await rights_of(its_url)).state == "ok"
        await connection.execute(f"REVOKE INSERT ON forge_jobs FROM {role}")
        found = await rights_of(its_url)
        assert "INSERT on forge_jobs; run GRANT INSERT ON TABLE public.forge_jobs TO ROLE" in (
            found.text
        )
        await connection.execute(f"GRANT INSERT ON forge_jobs TO {role}")
        await connection.execute("REVOKE EXECUTE ON FUNCTION forge_take_turns FROM public")
        found = await rights_of(its_url)
        await connection.execute("GRANT EXECUTE ON FUNCTION forge_take_turns TO public")
    assert found.state == "fail"
    assert "GRANT EXECUTE ON FUNCTION public.forge_take_turns TO ROLE" in found.text


async def rights_of(url: str) -> Finding:
    """Return the finding of the doctor about the rights of the role."""
    async with await open_storage(url) as storage:
        findings = await examine(Reader(storage))
    [found] = [each for each in findings if each.check == "rights"]
    return found
