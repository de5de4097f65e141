"""Opening a store on Redis: the layout, refusals, and the view of the command line."""

import asyncio
import logging
import secrets

import pytest

from forge_jobs.errors import Conflict, NotFound, SchemaMismatch, StorageError, Unavailable
from forge_jobs.storage.opening import open_migrator, open_storage
from forge_jobs.storage.redis.base.schema import MIGRATIONS, Layout
from forge_jobs.testing.servers import RedisServer
from tests.cli.conftest import CommandLine
from tests.support.factories import enqueue_one, get_job
from tests.support.redis_databases import with_options

pytestmark = pytest.mark.anyio


@pytest.fixture
def prefix() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def url(server: RedisServer, prefix: str) -> str:
    return with_options(server.url, prefix=prefix)


def notes(server: RedisServer, prefix: str) -> dict[str, str]:
    """The layout's migrations as they lie in the store."""
    found: dict[str, str] = server.command("HGETALL", f"{prefix}:{{#}}:schema")
    return found


async def test_an_empty_store_gets_its_layout_at_once(
    server: RedisServer, url: str, prefix: str
) -> None:
    async with await open_storage(url) as storage:
        job_id = await enqueue_one(storage)
    assert sorted(notes(server, prefix)) == ["1", "2"]
    async with await open_storage(url, create=False) as storage:
        assert (await get_job(storage, job_id)).id == job_id


async def test_many_may_open_an_empty_store_at_once(
    server: RedisServer, url: str, prefix: str
) -> None:
    storages = await asyncio.gather(*(open_storage(url, migrate=True) for _ in range(20)))
    for storage in storages:
        await storage.aclose()
    assert len(notes(server, prefix)) == 2


@pytest.mark.parametrize("migrate", [None, True])
async def test_an_empty_store_is_not_made_against_the_callers_will(
    server: RedisServer, url: str, prefix: str, migrate: bool | None
) -> None:
    with pytest.raises(NotFound):
        await open_storage(url, create=False, migrate=migrate)
    assert server.command("KEYS", f"{prefix}*") == []


@pytest.mark.parametrize("migrate", [None, True])
async def test_a_newer_layout_is_refused(
    server: RedisServer, url: str, prefix: str, migrate: bool | None
) -> None:
    await (await open_storage(url)).aclose()
    server.command("HSET", f"{prefix}:{{#}}:schema", 99, "1700000000000000 of the future")
    with pytest.raises(SchemaMismatch, match="upgrade forge-jobs"):
        await open_storage(url, migrate=migrate)
    with pytest.raises(SchemaMismatch):
        await open_migrator(url).up()
    entries = await open_migrator(url).status()
    assert [(entry.version, entry.name, entry.known) for entry in entries] == [
        (1, "initial", True),
        (2, "locators_spread", True),
        (99, "of the future", False),
    ]


async def test_an_older_layout_is_refused_until_it_is_migrated(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    await (await open_storage(url)).aclose()
    newer = (*MIGRATIONS, Layout(3, "another", 1))
    monkeypatch.setattr("forge_jobs.storage.redis.base.schema.MIGRATIONS", newer)
    with pytest.raises(SchemaMismatch, match="lacks migration 3"):
        await open_storage(url)
    async with await open_storage(url, migrate=True, create=False) as storage:
        await enqueue_one(storage)
    await (await open_storage(url)).aclose()


async def test_a_newer_layout_that_works_with_this_program_is_taken(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    with monkeypatch.context() as patch:
        newer = (*MIGRATIONS, Layout(3, "another", 1))
        patch.setattr("forge_jobs.storage.redis.base.schema.MIGRATIONS", newer)
        await open_migrator(url).up()
    for migrate in (False, True):
        async with await open_storage(url, migrate=migrate) as storage:
            await enqueue_one(storage)
    assert await open_migrator(url).up() == []
    newest = (await open_migrator(url).status())[-1]
    assert (newest.version, newest.name, newest.known, newest.works_from) == (
        3,
        "another",
        False,
        1,
    )


async def test_no_layout_is_undone(url: str) -> None:
    async with await open_storage(url) as storage:
        await enqueue_one(storage)
    assert await open_migrator(url).down(2) == []
    with pytest.raises(Conflict, match="cannot be undone without losing data"):
        await open_migrator(url).down(0)


async def test_prefixes_are_stores_of_their_own(server: RedisServer, url: str) -> None:
    other_url = with_options(server.url, prefix=f"test-{secrets.token_hex(6)}")
    async with await open_storage(url) as one, await open_storage(other_url) as other:
        await enqueue_one(one)
        assert one.jobs.store_id != other.jobs.store_id
        assert await other.jobs.counts() == {}


async def test_nothing_of_the_address_is_shown(server: RedisServer, url: str) -> None:
    async with await open_storage(url) as storage:
        shown = f"{storage!r} {storage.name} {storage.durability} {storage.jobs.store_id}"
    for secret in (server.password, "127.0.0.1", str(server.port)):
        assert secret not in shown


async def test_what_an_acknowledged_job_survives_is_logged_and_kept(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs.storage.redis")
    async with await open_storage(url) as storage:
        assert "appendfsync always" in storage.durability
        async with await storage.reopen() as other:
            assert other.durability == storage.durability
    [line] = caplog.messages
    assert storage.durability in line


async def test_a_server_that_drops_keys_is_refused(server: RedisServer, url: str) -> None:
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    try:
        with pytest.raises(StorageError, match="noeviction"):
            await open_storage(url)
    finally:
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    for url in (
        "redis://127.0.0.1:1",
        "redis+cluster://127.0.0.1:1,127.0.0.1:2",
        "redis+sentinel://127.0.0.1:1/main",
    ):
        with pytest.raises(Unavailable):
            await open_storage(url)


def test_the_command_line_works_on_it(url: str) -> None:
    forge = CommandLine(url)
    forge("migrate", "status", code=1)
    assert "HSETNX" in forge("migrate", "sql").stdout
    assert "Applied 0001 initial" in forge("migrate", "up").stderr
    assert forge("migrate", "sql").stdout == ""
    forge("migrate", "status")
    job_id = forge("enqueue", "mail").stdout.strip()
    assert forge.json("jobs", "show", job_id)["id"] == job_id
    findings = forge.json("doctor")["findings"]
    [durability] = [each for each in findings if each["check"] == "durability"]
    assert "appendfsync always" in durability["text"]
