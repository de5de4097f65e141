"""The storage of the requests, which the program may open later than the application."""

from collections.abc import Callable

from forge_jobs.storage.protocols import Storage
from forge_jobs.web.problems import unavailable

StorageSource = Storage | Callable[[], Storage | None]
"""The storage, or a function that returns the storage once the program has opened one."""


class Source:
    """Gives the storage to requests."""

    def __init__(self, storage: StorageSource) -> None:
        self._storage = storage

    def storage(self) -> Storage:
        """Return the storage.

        :raises Refused: the program has not opened the storage yet
        """
        found = self._storage if isinstance(self._storage, Storage) else self._storage()
        if found is None:
            raise unavailable()
        return found
