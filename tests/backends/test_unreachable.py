"""A server that cannot be reached is named with host and port, and never with the password."""

import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.storage.opening import open_migrator, open_storage
from tests.support.ports import free_ports
from tests.support.silent import mute

pytestmark = pytest.mark.anyio

_LOGIN = "user:secret-word@"


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql://{login}127.0.0.1:{port}/shop", "the database at 127.0.0.1:{port} cannot"),
        (
            "postgresql:///shop?host=127.0.0.1&port={port}",
            "the database at 127.0.0.1:{port} cannot",
        ),
        ("redis://{login}127.0.0.1:{port}/0", "the server at 127.0.0.1:{port} cannot"),
        (
            "redis+sentinel://{login}127.0.0.1:{port},localhost:{port}/main/0",
            "the primary that the sentinels at 127.0.0.1:{port}, localhost:{port} know cannot",
        ),
        (
            "redis+cluster://{login}127.0.0.1:{port},localhost:{port}",
            "the cluster at 127.0.0.1:{port}, localhost:{port} cannot",
        ),
    ],
)
async def test_who_cannot_be_reached_is_said(url: str, named: str) -> None:
    with free_ports() as port, pytest.raises(Unavailable) as refused:
        await open_storage(url.format(login=_LOGIN, port=port))

    assert str(refused.value).startswith(named.format(port=port) + " be reached")
    assert "secret-word" not in f"{refused.value} {refused.value!r}"


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
async def test_a_silent_server_is_said_to_be_silent_for_as_long_as_the_call_waited(
    scheme: str,
) -> None:
    with mute() as port:
        url = f"{scheme}://127.0.0.1:{port}/0?timeout=0.5"
        # A migration may wait for an hour, and an attempt to connect may not.
        for call in (open_storage(url), open_migrator(url).status()):
            with pytest.raises(Unavailable, match=r"gave no answer within 0\.5 s"):
                await call
