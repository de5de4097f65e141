"""A store on a server, or in a file of the user's, that is lent to one test after another."""

from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.kit.background import background
from forge_jobs.testing.kit.clock import TravelClock
from forge_jobs.testing.kit.stores.any_loop import for_any_loop
from forge_jobs.testing.kit.stores.places import Place, place_on


class ServerStore:
    """A place on a server. Made and lent on the loop of the kit.

    :ivar clock: the clock of the stores
    """

    def __init__(self, place: Place) -> None:
        self.clock = TravelClock()
        self._place = place
        self._lent: Storage | None = None
        self._is_fresh = True

    @classmethod
    async def make(cls, url: str) -> "ServerStore":
        """Take a place of this process.

        :raises InvalidInput: the URL is wrong (field ``url``)
        """
        return cls(place_on(url))

    @property
    def url(self) -> str:
        """The URL of the place, for other programs. Their clock is the server's."""
        return self._place.url

    async def lend(self) -> Storage:
        """Return an empty store, at the machine's time.

        :raises StorageError: the server is not there, or something holds what an earlier test has
            left
        """
        self.clock.reset()
        if self._is_fresh:
            await self._place.sweep()
        else:
            await self._place.empty()
        self._is_fresh = False
        self._lent = await open_storage(self.url, clock=self.clock)
        return for_any_loop(self._lent, background())

    async def take_back(self) -> None:
        """Close the store. A call is refused from now on."""
        lent, self._lent = self._lent, None
        if lent is not None:
            await lent.aclose()

    async def close(self) -> None:
        """Remove the place."""
        await self.take_back()
        await self._place.remove()
