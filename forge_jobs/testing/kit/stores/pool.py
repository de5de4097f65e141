"""The stores of this process that no test has in use."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from forge_jobs.errors import StorageError
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.kit.clock import TravelClock


class LentStore(Protocol):
    """A store that is lent to one test after another, on the loop of the kit."""

    clock: TravelClock

    @property
    def url(self) -> str:
        """Where other programs find the store."""
        ...

    async def lend(self) -> Storage:
        """Return the empty store.

        :raises StorageError: something holds what an earlier test has left
        """
        ...

    async def take_back(self) -> None:
        """Close what was lent."""
        ...

    async def close(self) -> None:
        """Remove the store."""
        ...


class Stores:
    """Keeps stores from test to test.

    :param make: makes another, when all are in use
    """

    def __init__(self, make: Callable[[], Awaitable[LentStore]]) -> None:
        self._make = make
        self._free: list[LentStore] = []
        self._given_up: list[LentStore] = []

    async def take(self) -> tuple[LentStore, Storage]:
        """Return a store that no other test uses, and its views."""
        while self._free:
            store = self._free.pop()
            try:
                return store, await store.lend()
            except StorageError:
                # What a test has left running holds the records.
                await store.close()
                self._given_up.append(store)
        store = await self._make()
        return store, await store.lend()

    async def give_back(self, store: LentStore) -> None:
        """Keep a store for the next test."""
        await store.take_back()
        self._free.append(store)

    async def close(self) -> None:
        """Remove the stores that are free, and try again those that were given up."""
        while self._free:
            await self._free.pop().close()
        while self._given_up:
            await self._given_up.pop().close()
