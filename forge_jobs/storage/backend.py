"""What a backend gives the dispatcher: one module with ``parse``, and what that returns.

``parse(url)`` of a backend's module ``opening`` checks a whole URL, options included, connects to
nothing and returns a :class:`Backend`. It raises ``InvalidInput`` (field ``url``) with a text
that shows no password.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from forge_jobs.clock import Clock
from forge_jobs.storage.protocols import Storage


@dataclass(frozen=True)
class MigrationStatus:
    """A migration this program knows, or one that a newer program has applied.

    :param applied_at: None: not yet
    :param known: False: the program that applied it is newer than this one
    """

    version: int
    name: str
    applied_at: datetime | None
    known: bool = True


class Migrator(Protocol):
    """The schema of one store, apart from using it: for the command line.

    Each method connects, does one thing and disconnects.
    """

    async def status(self) -> list[MigrationStatus]:
        """Every migration, oldest first, and when it was applied."""
        ...

    async def up(self) -> list[MigrationStatus]:
        """Apply what is missing; the migrations that were applied now.

        :raises SchemaMismatch: the schema is newer than this program
        """
        ...

    async def sql(self) -> str:
        """What :meth:`up` would run; empty when there is nothing to do. Changes nothing."""
        ...


class Backend(Protocol):
    """One store's address, checked but not yet connected to."""

    async def open(self, *, clock: Clock | None, migrate: bool, create: bool) -> Storage:
        """Connect, create or check the schema, and wire the four views.

        :param clock: the store's clock in place of its own, for tests
        :param migrate: True: bring an older schema up to date
        :param create: False: a store that does not exist is ``NotFound``, not a new one
        :raises NotFound: there is no such store
        :raises SchemaMismatch: the schema is older (and ``migrate`` is False) or newer
        :raises Unavailable: the store cannot be reached
        """
        ...

    def migrator(self, clock: Clock | None) -> Migrator:
        """The schema of the store."""
        ...
