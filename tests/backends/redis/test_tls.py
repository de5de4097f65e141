"""rediss: URLs: trusted and untrusted servers. The wheel's server has no TLS: a proxy has."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forge_jobs.errors import StorageRefused, Unavailable
from tests.support import servers
from tests.support.listening import listening, pump
from tests.support.redis_databases import opened, with_options

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[2] / "support" / "tls"
AUTHORITY = FOLDER / "authority.pem"


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    """Where the server is reached by TLS."""
    target = urlsplit(servers.redis_url())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(FOLDER / "server.pem", FOLDER / "server.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pump(reader, inside[1]), pump(inside[0], writer))

    async with listening(serve, ssl=context) as port:
        yield port


def url(port: int, **options: object) -> str:
    """The server by TLS."""
    password = urlsplit(servers.redis_url()).password
    return with_options(f"rediss://:{password}@localhost:{port}/0", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_ca_certs": AUTHORITY},
        {"ssl_ca_certs": AUTHORITY, "ssl_check_hostname": "false"},
        {"ssl_cert_reqs": "none"},
    ],
)
async def test_a_trusted_server_works_for_calls_and_wake_ups(
    port: int, options: dict[str, object]
) -> None:
    async with opened(url(port, **options)) as database:
        key = f"{database.keys.fleet}:x"
        assert await database.commands([("INCR", key), ("DEL", key)]) == [1, 1]
        assert (await database.wait(frozenset(), timedelta(seconds=10))).beat


async def test_a_server_that_nobody_vouches_for_is_refused_with_the_fix(port: int) -> None:
    async with opened(url(port)) as database:
        with pytest.raises(StorageRefused, match="ssl_ca_certs") as refused:
            await database.commands([("GET", database.keys.fleet)])
    assert "localhost" not in str(refused.value)


async def test_a_server_without_tls_is_unavailable() -> None:
    port = urlsplit(servers.redis_url()).port
    assert port is not None
    async with opened(url(port, ssl_ca_certs=AUTHORITY), timeout=3) as database:
        with pytest.raises(Unavailable):
            await database.commands([("GET", database.keys.fleet)])
