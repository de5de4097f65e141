"""TLS by URL: trusted and untrusted servers. A proxy serves TLS, because not every server can."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from forge_jobs.errors import InvalidInput, StorageError, StorageRefused, Unavailable
from forge_jobs.storage.opening import open_storage
from tests.support.factories import QUEUE, enqueue_one, get_job
from tests.support.listening import listening, pump
from tests.support.postgres import with_options

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[2] / "support" / "tls"
AUTHORITY = quote(str(FOLDER / "authority.pem"), safe="")
SERVER_ITSELF = quote(str(FOLDER / "server.pem"), safe="")
ANOTHER_NAME = "127.0.0.2"
"""An address of the same server that is not in the certificate."""

ASKS_FOR_TLS = bytes.fromhex("0000000804d2162f")


@pytest.fixture
async def tls_url(url: str) -> AsyncGenerator[str]:
    """The same database, where only those are served who ask for TLS."""
    target = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(FOLDER / "server.pem", FOLDER / "server.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if await reader.readexactly(8) == ASKS_FOR_TLS:
                writer.write(b"S")
                await writer.start_tls(context)
                inside = await asyncio.open_connection(target.hostname, target.port)
                await asyncio.gather(pump(reader, inside[1]), pump(inside[0], writer))

    user = target.netloc.rpartition("@")[0]
    async with listening(serve, "127.0.0.1", ANOTHER_NAME) as port:
        yield target._replace(netloc=f"{user}@localhost:{port}").geturl()


@pytest.mark.parametrize(
    "options",
    [
        {"sslmode": "require"},
        {"sslmode": "verify-ca", "sslrootcert": AUTHORITY},
        {"sslmode": "verify-full", "sslrootcert": AUTHORITY},
    ],
)
async def test_a_trusted_server_works_for_calls_and_wake_ups(
    tls_url: str, options: dict[str, object]
) -> None:
    async with await open_storage(with_options(tls_url, **options)) as storage:
        mine = frozenset({QUEUE})
        while await storage.jobs.wait_for_work(mine, timedelta(seconds=0.1)):
            pass
        assert storage.health().wakes
        job_id = await enqueue_one(storage)
        assert await storage.jobs.wait_for_work(mine, timedelta(seconds=10))
        assert (await get_job(storage, job_id)).id == job_id


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_a_server_that_the_authority_does_not_know_is_refused_with_the_fix(
    tls_url: str, mode: str
) -> None:
    there = with_options(tls_url, sslmode=mode, sslrootcert=SERVER_ITSELF)
    with pytest.raises(StorageRefused, match="sslrootcert") as refused:
        await open_storage(there)
    # No wait helps: the server is refused until an operator changes the URL or the server.
    assert shows_nothing(refused.value)


async def test_a_server_of_another_name_is_refused_where_names_count(tls_url: str) -> None:
    there = with_options(tls_url.replace("localhost", ANOTHER_NAME), sslrootcert=AUTHORITY)
    await (await open_storage(with_options(there, sslmode="verify-ca"))).aclose()
    with pytest.raises(StorageError, match="certificate") as refused:
        await open_storage(with_options(there, sslmode="verify-full"))
    assert shows_nothing(refused.value)


async def test_a_server_without_tls_is_refused_where_tls_is_asked_for(url: str) -> None:
    with pytest.raises(StorageError, match="has no TLS") as refused:
        await open_storage(with_options(url, sslmode="require", timeout=3))
    assert shows_nothing(refused.value)


@contextmanager
def breaking_off(answer: bytes) -> Iterator[int]:
    """The port of a server that gives every caller this answer and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    with caller:
                        caller.recv(8)
                        caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Closing alone would leave the thread waiting.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("answer", [b"E\0\0\0\4", b""], ids=["an error", "its end"])
async def test_a_handshake_that_breaks_off_may_go_better(answer: bytes) -> None:
    """Connect to a server that breaks off while it starts, as a caller sees it."""

    with breaking_off(answer) as port, pytest.raises(Unavailable):
        await open_storage(f"postgresql://nobody@127.0.0.1:{port}/none?timeout=3")


@pytest.mark.parametrize(
    "options", [{"sslmode": "verify-full", "sslrootcert": "%2Fnowhere%2Fca.pem"}, {"sslmode": "x"}]
)
async def test_options_that_cannot_be_met_are_bad_input(
    tls_url: str, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput, match="ssl") as refused:
        await open_storage(with_options(tls_url, **options))
    assert shows_nothing(refused.value)


def shows_nothing(error: BaseException) -> bool:
    """Return whether the error names neither host nor path, and hides the driver's errors."""
    shown = f"{error} {error!r}"
    hidden = ("localhost", "127.0.0", "nowhere", str(FOLDER), "CERTIFICATE_VERIFY", "asyncpg")
    is_alone = error.__context__ is None or error.__suppress_context__
    return is_alone and not any(word in shown for word in hidden)
