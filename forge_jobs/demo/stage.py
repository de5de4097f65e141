"""The store of the demo: a part of its own in a given store, a file, or a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Literal
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from forge_jobs.errors import ForgeJobsError, InvalidInput
from forge_jobs.storage.protocols import Storage

SCHEMA = "forge_demo"
PREFIX = "forge-demo"

NOTHING_LEFT = "Nothing of it is left behind."

ServerKind = Literal["postgres", "redis"]


class StoreInUse(ForgeJobsError):
    """Other pods work on the store. The demo's short leases and its kills are not for them."""


class Stage(Struct, frozen=True):
    """A store to play on.

    :param leaves: what stays in the store afterwards, for people
    """

    url: str
    leaves: str = NOTHING_LEFT


def in_folder(folder: Path) -> Stage:
    """A file in the demo's folder, removed together."""
    return Stage(f"sqlite:///{quote(str(folder / 'jobs.db'))}")


def in_store(url: str) -> Stage:
    """A part of a given store, apart from what else is there. The URL may choose the part.

    :raises InvalidInput: only one process could use such a store
    """
    scheme, _, rest = url.partition("://")
    location, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    if scheme.startswith("postgres"):
        schema = options.get("schema", SCHEMA)
        leaves = f"The schema {schema} stays in the database, without jobs"
        drop = f"; to remove it: DROP SCHEMA {schema} CASCADE" if schema == SCHEMA else ""
        return Stage(_with_option(url, "schema", schema), f"{leaves}{drop}.")
    if scheme.startswith("redis"):
        prefix = options.get("prefix", PREFIX)
        leaves = f"A few keys that begin with {prefix}: stay on the server, and no jobs."
        return Stage(_with_option(url, "prefix", prefix), leaves)
    if location.startswith("/:memory:"):
        raise InvalidInput(
            "storage", "is a store of one process", "leave it out, and the demo makes a file"
        )
    return Stage(url, "The file stays, without the demo's jobs.")


def _with_option(url: str, name: str, value: str) -> str:
    """The URL with this value for an option that is not named there."""
    _, _, query = url.partition("?")
    if name in dict(parse_qsl(query)):
        return url
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(value)}"


@contextmanager
def on_a_server(kind: ServerKind) -> Iterator[Stage]:
    """A server that syncs each commit to the disk, and is gone afterwards with its data.

    :raises ServerError: the programs are not installed, or do not start
    """
    from forge_jobs.testing.servers import PostgresServer, RedisServer

    # On a disk: a server to throw away keeps its data in memory where there is enough.
    folder = Path(gettempdir())
    start = PostgresServer if kind == "postgres" else RedisServer
    with start(durable=True, folder=folder) as server:
        yield Stage(server.url)


async def check_unused(storage: Storage) -> None:
    """:raises StoreInUse: a live pod works on the store"""
    live = [pod for pod in await storage.procs.pods() if pod.lease_remaining.total_seconds() > 0]
    if live:
        raise StoreInUse(
            f"pods work on this store ({len(live)}); give the demo one of its own, "
            "or wait until an earlier demo has gone"
        )
