"""The version of the layout of keys: which program may use a store.

Redis has no tables to make. A migration here is a note that the layout has changed, and which
programs can use it; the notes are a hash under the base of the fleet.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from forge_jobs.clock import from_us
from forge_jobs.errors import NotFound, SchemaMismatch
from forge_jobs.storage.backend import MigrationStatus, check_down, refuse_newer
from forge_jobs.storage.redis.database import Database


class Layout(NamedTuple):
    """A change of the layout.

    :param works_from: programs whose own last layout is this or later work with it
    """

    number: int
    name: str
    works_from: int


MIGRATIONS = (Layout(1, "initial", 1),)
"""In order. The first needs no change of any key."""

_Rows = list[tuple[int, int, str, int, bool]]


class RedisMigrator:
    """A ``Migrator``. Each method connects, does one thing and disconnects."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Database]]) -> None:
        self._connect = connect

    async def status(self) -> list[MigrationStatus]:
        """See ``Migrator.status``."""
        async with self._connect() as database:
            return _merged(await _run(database, "look"))

    async def up(self) -> list[MigrationStatus]:
        """See ``Migrator.up``."""
        async with self._connect() as database:
            rows = await _run(database, "migrate")
        refuse_newer(_merged(rows))
        new = {number for number, *_, is_new in rows if is_new}
        return [entry for entry in _merged(rows) if entry.version in new]

    async def down(self, to: int) -> list[MigrationStatus]:
        """See ``Migrator.down``: no layout can be undone without losing data."""
        entries = reversed(await self.status())
        undone = [entry for entry in entries if entry.applied_at and entry.version > to]
        check_down(undone, frozenset())
        return undone

    async def sql(self) -> str:
        """See ``Migrator.sql``: the commands, for there is no SQL here."""
        async with self._connect() as database:
            key = f"{database.keys.fleet}:schema"
            missing = [
                each for each in _merged(await _run(database, "look")) if not each.applied_at
            ]
        return "".join(
            f"# {entry.version:04} {entry.name}\n"
            f"HSETNX {key} {entry.version} "
            f"'<microseconds since 1970> from={entry.works_from} {entry.name}'\n"
            for entry in missing
        )


async def settle_schema(database: Database, *, migrate: bool, create: bool) -> None:
    """Note the layout in an empty store, else check it.

    :raises NotFound: the store is empty, and ``create`` is False
    :raises SchemaMismatch: it is older (and ``migrate`` is False), or newer and not for this
        program
    """
    mode = "migrate" if migrate and create else "create" if create else "look"
    rows = await _run(database, mode)
    if not rows:
        raise NotFound(
            "there are no jobs under this URL's prefix; correct it, or begin with "
            "'forge-jobs migrate up'"
        )
    if migrate and not create:
        rows = await _run(database, "migrate")
    entries = _merged(rows)
    refuse_newer(entries)
    missing = [entry.version for entry in entries if entry.applied_at is None]
    if missing:
        raise SchemaMismatch(
            f"the store's layout is older than this program: it lacks migration {missing[0]}; "
            "run `forge-jobs migrate up`"
        )


async def _run(database: Database, mode: str) -> _Rows:
    request = (mode, MIGRATIONS)
    return await database.run_one("schema", database.keys.fleet, request, _Rows)


def _merged(rows: _Rows) -> list[MigrationStatus]:
    """Every migration that is known or applied, oldest first."""
    known = {each.number for each in MIGRATIONS}
    entries = {
        each.number: MigrationStatus(each.number, each.name, None, True, each.works_from)
        for each in MIGRATIONS
    }
    for number, time, name, works_from, _ in rows:
        entries[number] = MigrationStatus(number, name, from_us(time), number in known, works_from)
    return [entries[number] for number in sorted(entries)]
