"""Redis refuses for seconds: a login, a command, a slot, an error without a name."""

from collections.abc import AsyncGenerator

import pytest
from redis.asyncio import Redis

from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.servers import RedisServer
from tests.support.redis_databases import KEYS, with_options
from tests.support.refusals import is_ridden_out

pytestmark = pytest.mark.anyio

RULES = ("reset", "on", ">word", "~*", "&*", "+@all")


@pytest.fixture
async def storage(server: RedisServer, client: Redis) -> AsyncGenerator[Storage]:
    """A store whose user the test changes."""
    server.command("ACL", "SETUSER", "jobs", *RULES)
    url = server.url.replace(f":{server.password}@", "jobs:word@")
    async with await open_storage(with_options(url, prefix=KEYS.prefix)) as made:
        yield made


@pytest.mark.parametrize(
    ("begin", "named"),
    [
        (
            ("resetpass", ">another"),
            "the server refused the login; check user and password in the URL",
        ),
        (("off",), "the server refused the login; check user and password in the URL"),
        (("-evalsha", "-eval"), "do not let this user run the command evalsha"),
        (("resetkeys",), "do not let this user touch keys of this prefix"),
    ],
    ids=["password", "off", "command", "keys"],
)
async def test_what_is_refused_to_all_is_waited_out(
    storage: Storage,
    server: RedisServer,
    begin: tuple[str, ...],
    named: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def step(*rules: str) -> None:
        server.command("ACL", "SETUSER", "jobs", *rules)
        # Who is connected stays so, but for this.
        server.command("CLIENT", "KILL", "USER", "jobs")

    await is_ridden_out(storage, lambda: step(*begin), lambda: step(*RULES), named, caplog)
