"""What a backend gives the dispatcher: one module with ``parse``, and what that returns.

``parse(url)`` of a backend's module ``opening`` checks a whole URL, options included, connects to
nothing and returns a :class:`Backend`. It raises ``InvalidInput`` (field ``url``) with a text
that shows no password.
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

    :param applied_at: None: not yet
    :param known: False: the program that applied it is newer than this one
    :param works_from: programs whose own last migration is this or later work with it
    """

    version: int
    name: str
    applied_at: datetime | None
    known: bool
    works_from: int


def refuse_newer(entries: Sequence[MigrationStatus]) -> None:
    """Refuse a schema with migrations that are beyond this program.

    :raises SchemaMismatch: one of them does not say that it works with programs like this
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

    :param undone: those that would be, newest first
    :param undoable: versions that can be undone without losing data
    :raises Conflict: one of them is not among those, or is of a newer program
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
    """The schema of one store, apart from using it: for the command line.

    Each method connects, does one thing and disconnects.
    """

    async def status(self) -> list[MigrationStatus]:
        """Every migration, oldest first, and when it was applied."""
        ...

    async def up(self) -> list[MigrationStatus]:
        """Apply what is missing; the migrations that were applied now.

        :raises SchemaMismatch: the schema is newer, and not one for this program
        :raises Unavailable: others held what it needs all the time; the text names them
        """
        ...

    async def down(self, to: int) -> list[MigrationStatus]:
        """Undo every migration after version ``to``, all or none; those, newest first.

        :raises Conflict: that would lose data, or pods are at work
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
        :raises SchemaMismatch: the schema is older (and ``migrate`` is False), or newer and not
            one that works with this program
        :raises Unavailable: the store cannot be reached
        """
        ...

    def migrator(self, clock: Clock | None) -> Migrator:
        """The schema of the store."""
        ...

    async def back_up(self, target: Path) -> None:
        """Copy the store to a new file while programs use it.

        :raises InvalidInput: it has tools of its own for that; the text names them
        """
        ...
