"""Stores for the fixtures of the pytest plugin, and for tests without pytest."""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.kit.background import background
from forge_jobs.testing.kit.clock import TravelClock
from forge_jobs.testing.kit.kit import Kit
from forge_jobs.testing.kit.private_store import PrivateStores

_pools: dict[int, PrivateStores] = {}


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
def lend() -> Iterator[Lent]:
    """Lend an empty SQLite store to one test."""
    pool, home = _pool(), background()
    store, storage = home.run(pool.take())
    try:
        yield Lent(storage, store.clock, store.url)
    finally:
        home.run(pool.give_back(store))


def _pool() -> PrivateStores:
    process_id = os.getpid()
    if process_id not in _pools:
        home = background()
        # A forked child leaves the connections of its parent alone.
        pool = _pools[process_id] = PrivateStores()
        # Registered after the end of the loop, so that this comes first.
        atexit.register(lambda: os.getpid() == process_id and home.run(pool.close()))
    return _pools[process_id]
