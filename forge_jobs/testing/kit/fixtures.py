"""Stores for the fixtures of the pytest plugin, and for tests without pytest."""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.kit.background import background
from forge_jobs.testing.kit.clock import TravelClock
from forge_jobs.testing.kit.kit import Kit
from forge_jobs.testing.kit.stores.pool import LentStore, Stores
from forge_jobs.testing.kit.stores.private import PrivateStore

_pools: dict[tuple[int, str], Stores] = {}


class Lent:
    """The store of one test.

    :ivar storage: the views of the store
    """

    def __init__(self, storage: Storage, clock: TravelClock, url: str) -> None:
        self.storage = storage
        self._clock = clock
        self._url = url

    def kit(self, handlers: HandlerRegistry | Callable[[], HandlerRegistry]) -> Kit:
        """Return the kit over the store."""
        return Kit(self.storage, handlers, clock=self._clock, url=self._url)


@contextmanager
def lend(url: str = "") -> Iterator[Lent]:
    """Lend an empty store to one test.

    :param url: "": SQLite in memory. Else the store of this process on that server, in a schema or
        prefix of its own, or a file of its own beside that one. ``postgresql`` and ``redis`` alone
        stand for servers that this process starts
    :raises InvalidInput: the URL is wrong (field ``url``)
    :raises StorageError: the server is not there
    """
    pool, home = _pool(_server_url(url)), background()
    store, storage = home.run(pool.take())
    try:
        yield Lent(storage, store.clock, store.url)
    finally:
        home.run(pool.give_back(store))


def _pool(url: str) -> Stores:
    key = os.getpid(), url
    if key not in _pools:
        home = background()
        # A forked child leaves the connections of its parent alone.
        pool = _pools[key] = Stores(lambda: _make(url))
        # Registered after the end of the loop, so that this comes first.
        atexit.register(lambda: os.getpid() == key[0] and home.run(pool.close()))
    return _pools[key]


async def _make(url: str) -> LentStore:
    if not url:
        return await PrivateStore.make()
    # The drivers of servers are loaded where a test asks for a server.
    from forge_jobs.testing.kit.stores.server import ServerStore

    return await ServerStore.make(url)


@cache
def _server_url(url: str) -> str:
    """Return the URL of the server, which is started where only the kind of store is named."""
    if url.startswith("sqlite:///:memory:"):
        return ""
    if url not in ("postgresql", "redis"):
        return url
    from forge_jobs.testing.servers import PostgresServer, RedisServer

    server = (PostgresServer if url == "postgresql" else RedisServer)().start()
    atexit.register(server.close)
    return server.url
