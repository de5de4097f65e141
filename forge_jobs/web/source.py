"""The storage of the requests, which the program may open later than the application."""

from collections.abc import Callable

from forge_jobs.operating.access import Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.redaction import NO_REDACTION, Redaction
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.problems import unavailable

StorageSource = Storage | Callable[[], Storage | None]
"""The storage, or a function that returns the storage once the program has opened one."""


class Source:
    """Gives the storage and operators to requests."""

    def __init__(self, storage: StorageSource, redaction: Redaction = NO_REDACTION) -> None:
        self._storage = storage
        self._reader: Reader | None = None
        self.redaction = redaction

    def storage(self) -> Storage:
        """Return the storage.

        :raises Refused: the program has not opened the storage yet
        """
        found = self._storage if isinstance(self._storage, Storage) else self._storage()
        if found is None:
            raise unavailable()
        return found

    @property
    def has_reader(self) -> bool:
        """True once there is a reader."""
        return self._reader is not None

    def reader(self) -> Reader:
        """Return the reader of the storage, the same for all requests.

        :raises Refused: the program has not opened the storage yet
        """
        storage = self.storage()
        if self._reader is None or self._reader.storage is not storage:
            self._reader = Reader(storage)
        return self._reader

    def operator(self, actor: Actor) -> Operator:
        """Return the operator of a caller.

        :raises Refused: the program has not opened the storage yet
        """
        return Operator(self.storage(), actor, redact=self.redaction)
