"""The contract of a backend: one module with ``parse``, and the :class:`Backend` that it returns.

``parse(url)`` of a backend's module ``opening`` checks a whole URL, options included, connects to
nothing and returns a :class:`Backend`. ``parse`` raises ``InvalidInput`` (field ``url``) with a
text that shows no password.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from forge_jobs.clock import Clock
from forge_jobs.errors import Conflict, SchemaMismatch
from forge_jobs.storage.protocols import Storage


@dataclass(frozen=True)
class MigrationStatus:
    """A migration this program knows, or one that a newer program has applied.

    :param applied_at: None: not yet applied
    :param known: False: the program that applied the migration is newer than this one
    :param works_from: programs whose own last migration is this or later work with the migration
    """

    version: int
    name: str
    applied_at: datetime | None
    known: bool
    works_from: int


def refuse_newer(entries: Sequence[MigrationStatus]) -> None:
    """Refuse a schema with migrations that are beyond this program.

    :raises SchemaMismatch: a migration does not declare that programs like this one work with it
    """
    mine = max(entry.version for entry in entries if entry.known)
    for entry in entries:
        if not entry.known and entry.works_from > mine:
            raise SchemaMismatch(
                f"the store's schema has migration {entry.version}, which works with programs from "
                f"schema version {entry.works_from} on; this program's is {mine}; "
                "upgrade forge-jobs to the release that the other programs run"
            )


def check_down(undone: Sequence[MigrationStatus], undoable: AbstractSet[int]) -> None:
    """Refuse to undo what cannot be undone.

    :param undone: the migrations to undo, newest first
    :param undoable: versions that can be undone without losing data
    :raises Conflict: a version is not among ``undoable``, or is of a newer program
    """
    for entry in undone:
        if not entry.known:
            raise Conflict(
                f"migration {entry.version} is of a newer program; run 'forge-jobs migrate down' "
                "of that release"
            )
        if entry.version not in undoable:
            raise Conflict(
                f"migration {entry.version} cannot be undone without losing data. Programs from "
                f"schema version {entry.works_from} on work with it as it is; for anything older "
                "restore a backup"
            )


class Migrator(Protocol):
    """The schema of one store, for the command line.

    Each method connects, does one thing and disconnects.
    """

    async def status(self) -> list[MigrationStatus]:
        """Return every migration, oldest first, with the time of application."""
        ...

    async def up(self) -> list[MigrationStatus]:
        """Apply missing migrations, and return them.

        :raises SchemaMismatch: the schema is newer, and not one for this program
        :raises Unavailable: other transactions kept the locks that a migration needs. The text
            names them
        """
        ...

    async def down(self, to: int) -> list[MigrationStatus]:
        """Undo every migration after version ``to``, all or none, and return them, newest first.

        :raises Conflict: undoing would lose data, or pods are at work
        """
        ...

    async def sql(self) -> str:
        """Return the SQL that :meth:`up` would run, empty when nothing is missing."""
        ...


class Backend(Protocol):
    """The address of one store, checked but not yet connected to."""

    async def open(self, *, clock: Clock | None, migrate: bool, create: bool) -> Storage:
        """Connect, create or check the schema, and wire the four views.

        :param clock: a clock in place of the store's own, for tests
        :param migrate: True: bring an older schema up to date
        :param create: False: a store that does not exist is ``NotFound``, not a new one
        :raises NotFound: there is no such store
        :raises SchemaMismatch: the schema is older (and ``migrate`` is False), or newer and not one
            that works with this program
        :raises Unavailable: the store cannot be reached
        """
        ...

    def migrator(self, clock: Clock | None) -> Migrator:
        """Return the migrator of the store's schema."""
        ...

    async def back_up(self, target: Path) -> None:
        """Copy the store to a new file while programs use the store.

        :raises InvalidInput: the store is backed up with tools of its own. The text names them
        """
        ...
