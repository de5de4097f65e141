"""URLs with several hosts, what providers append to URLs, and hosts that never answer."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from forge_jobs.errors import InvalidInput, StorageError, Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.postgres.driver import hosts
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions, connect
from forge_jobs.storage.sql.postgres.driver.hosts import Address
from forge_jobs.storage.sql.postgres.opening import parse
from forge_jobs.testing.ports import HOST
from tests.support.factories import QUEUE, enqueue_one
from tests.support.listening import listening
from tests.support.ports import free_ports
from tests.support.postgres import as_user, database_of, with_options

pytestmark = pytest.mark.anyio


def options_of(url: str) -> PostgresOptions:
    return parse(url).options


def named(url: str) -> list[str]:
    return [str(each) for each in options_of(url).hosts.addresses]


def before(url: str, *first: str) -> str:
    """Return the URL with other servers named in front."""
    parts = urlsplit(url)
    login, _, own = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login}@{','.join((*first, own))}").geturl()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h1:5433,h2:5434,h3/db", ["h1:5433", "h2:5434", "h3:5432"]),
        ("postgresql://u:p@h1,h2:7/db?port=9", ["h1:9", "h2:7"]),
        ("postgresql:///db?host=h1,h2&port=1,2", ["h1:1", "h2:2"]),
        ("postgresql://[::1]:5433,[fe80::1]/db", ["[::1]:5433", "[fe80::1]:5432"]),
        ("postgresql:///db?host=/run/one,h2&port=6", ["/run/one", "h2:6"]),
        ("postgresql:///db", ["localhost:5432"]),
    ],
)
def test_hosts_are_named_as_libpq_names_them(url: str, expected: list[str]) -> None:
    assert named(url) == expected


def test_several_hosts_are_asked_for_one_that_takes_writes() -> None:
    assert options_of("postgresql://h1,h2/db").hosts.wanted == "read-write"
    assert options_of("postgresql://h1/db").hosts.wanted == "any"
    any_of = options_of("postgresql://h1,h2/db?target_session_attrs=any&direct=h3:1,h4:2")
    assert any_of.hosts.wanted == "any"
    assert any_of.direct is not None
    assert any_of.direct.addresses == (Address("h3", 1), Address("h4", 2))
    assert any_of.direct.wanted == "read-write"
    primary = options_of("postgresql://h1,h2/db?target_session_attrs=primary")
    assert primary.hosts.wanted == "primary"


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ("target_session_attrs=standby", "give target_session_attrs=read-write"),
        ("target_session_attrs=prefer-standby", "give target_session_attrs=read-write"),
        ("target_session_attrs=read-only", "give target_session_attrs=read-write"),
        ("target_session_attrs=writer", "did you mean read-write"),
        ("port=1,2", "one port, or one for each host"),
        ("port=70000", "1 to 65535"),
        ("channel_binding=require", "channel_binding=prefer, and sslmode=verify-full"),
        ("sslmode=verify-full", "sslrootcert=system"),
        ("sslmode=require&sslrootcert=system", "sslmode=verify-full"),
        ("gssencmode=require", "give one of: disable, prefer"),
        ("connect_timeout=soon", "0 to 3600"),
        ("direct=h1:1,h2", "direct=host:port"),
    ],
)
def test_what_cannot_be_met_is_refused_with_the_fix(
    options: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(InvalidInput) as refused:
        parse(f"postgresql://user:secret-word@h1,h2,h3/db?{options}")
    assert refused.value.field == "url"
    assert fix in str(refused.value)
    assert "secret-word" not in str(refused.value)


async def test_what_providers_append_is_taken(url: str) -> None:
    appended = with_options(
        url,
        sslmode="prefer",
        channel_binding="prefer",
        gssencmode="disable",
        options="-c%20geqo%3Doff",
        application_name="shop",
        connect_timeout=7,
        target_session_attrs="read-write",
        wake="poll",
    )
    async with await open_storage(appended) as storage:
        await enqueue_one(storage)
        [idle] = database_of(storage)._connections._idle
        assert await idle._driver.fetchval("SHOW application_name") == "shop"
        assert await idle._driver.fetchval("SHOW geqo") == "off"
    assert options_of(with_options(url, connect_timeout=3)).connect_s == 3


async def test_the_machines_own_authorities_do_not_know_a_server_of_ours(url: str) -> None:
    # The server has no TLS at all, and is not asked without TLS.
    with pytest.raises(StorageError, match="TLS"):
        await open_storage(with_options(url, sslrootcert="system"))


async def test_the_system_looks_after_a_silent_connection(url: str) -> None:
    options = options_of(with_options(url, keepalives_idle=41, tcp_user_timeout=7000))
    connection = await connect(options)
    try:
        found = connection._socket
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in (
            ("TCP_KEEPIDLE", 41),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 7000),
        ):
            assert found.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
    finally:
        await connection.close()


class Silent:
    """A server that takes connections and never says a word."""

    def __init__(self) -> None:
        self.asked = 0

    @asynccontextmanager
    async def listens(self) -> AsyncGenerator[str]:
        async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            self.asked += 1
            while await reader.read(1000):
                pass

        async with listening(serve) as port:
            yield f"{HOST}:{port}"


@pytest.fixture
def full() -> Iterator[str]:
    """Yield a server that accepts no connection, because the backlog is full."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        yield f"{HOST}:{listener.getsockname()[1]}"
        for one in waiting:
            one.close()


@pytest.fixture
def no_servers() -> Iterator[tuple[str, str]]:
    """Two addresses without a server."""
    with free_ports(2) as port:
        yield f"{HOST}:{port}", f"{HOST}:{port + 1}"


async def test_hosts_that_never_answer_cost_one_attempt_each(
    url: str, full: str, no_servers: tuple[str, str]
) -> None:
    silent = Silent()
    async with silent.listens() as mute:
        several = before(url, mute, full, no_servers[0])
        patient = with_options(several, timeout=3600, connect_timeout=3600)
        with anyio.fail_after(60):
            opened = await open_storage(patient)
        async with opened as storage:
            connections = database_of(storage)._connections
            for _ in range(5):
                await enqueue_one(storage)
                await connections.forget_idle()
            first, *_ = storage_hosts(storage)
            assert str(first) == urlsplit(url).netloc.rpartition("@")[2]
    assert silent.asked == 1


def storage_hosts(storage: Any) -> tuple[Address, ...]:
    return database_of(storage).options.hosts.addresses


async def test_the_listener_finds_the_host_too(url: str) -> None:
    silent = Silent()
    async with silent.listens() as mute, await open_storage(before(url, mute)) as storage:
        while await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(milliseconds=50)):
            pass
        assert storage.health().wakes
    assert silent.asked == 1


async def test_with_nobody_there_the_one_that_refuses_the_login_is_told_of(
    url: str, no_servers: tuple[str, str]
) -> None:
    stranger = as_user(url, "nobody_here", "wrong")
    with pytest.raises(StorageError, match="refused the login"):
        await open_storage(before(stranger, no_servers[0]))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await open_storage(f"postgresql://user@{','.join(no_servers)}/db")


async def test_a_slow_hosts_late_answer_is_closed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "HEAD_START_S", 0.0)
    several = options_of(before(url, urlsplit(url).netloc.rpartition("@")[2]))
    both = asyncio.Event()
    opened: list[Any] = []

    async def together(address: Address) -> Any:
        connection = Closable()
        opened.append(connection)
        if len(opened) == 2:
            both.set()
        await both.wait()
        return connection

    found = await several.hosts.first(together)
    assert [each.closed for each in opened] == [each is not found for each in opened]


class Closable:
    def __init__(self) -> None:
        self.closed = False

    def terminate(self) -> None:
        self.closed = True


async def test_a_caller_that_gives_up_leaves_no_attempt_behind(url: str, full: str) -> None:
    before_it = asyncio.all_tasks()
    with anyio.move_on_after(0.05):
        await connect(options_of(before(url, full, full)))
    assert asyncio.all_tasks() == before_it
