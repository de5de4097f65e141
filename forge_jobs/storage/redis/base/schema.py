"""The version of the layout of keys: which program may use a store.

Redis has no tables to make. A migration here is a note that the layout has changed, and which
programs can use the new one. The notes are a hash under the base of the fleet.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from forge_jobs.clock import from_us
from forge_jobs.errors import NotFound, SchemaMismatch
from forge_jobs.storage.backend import MigrationStatus, check_down, refuse_newer
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of


class Layout(NamedTuple):
    """A change of the layout.

    :param works_from: programs whose own last layout is this or later work with it
    :param in_cluster: the same in a cluster. None: no other
    :param is_needed: False: this program works with a store that lacks the change, so that the
        change may come once no older program is left
    """

    number: int
    name: str
    works_from: int
    in_cluster: int | None = None
    is_needed: bool = True


MIGRATIONS = (
    Layout(1, "initial", 1),
    Layout(2, "locators_spread", 1, in_cluster=2, is_needed=False),
)
"""In order. The first needs no change of any key. The second lets the pods of a cluster move its
locators, see ``moving.py``. On one server the locators stay."""

_Rows = list[tuple[int, int, str, int, bool]]


class RedisMigrator:
    """A ``Migrator``. Each method connects, does one thing and disconnects."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Database]]) -> None:
        self._connect = connect

    async def status(self) -> list[MigrationStatus]:
        """See ``Migrator.status``."""
        async with self._connect() as database:
            return _merged(database, await _run(database, "look"))

    async def up(self) -> list[MigrationStatus]:
        """See ``Migrator.up``."""
        async with self._connect() as database:
            rows = await _migrate(database, MIGRATIONS)
            entries = _merged(database, rows)
        refuse_newer(entries)
        new = {number for number, *_, is_new in rows if is_new}
        return [entry for entry in entries if entry.version in new]

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
            entries = _merged(database, await _run(database, "look"))
            missing = [each for each in entries if not each.applied_at]
        return "".join(
            f"# {entry.version:04} {entry.name}\n"
            f"HSETNX {key} {entry.version} "
            f"'<microseconds since 1970> from={entry.works_from} {entry.name}'\n"
            for entry in missing
        )


async def settle_schema(database: Database, *, migrate: bool, create: bool) -> bool:
    """Note the layout in an empty store, else check the layout. Return whether the store was empty.

    :raises NotFound: the store is empty, and ``create`` is False
    :raises SchemaMismatch: the store is older (and ``migrate`` is False), or newer and not for this
        program
    """
    rows = await _run(database, "create" if create else "look")
    if not rows:
        raise NotFound(
            "there are no jobs under this URL's prefix; correct it, or begin with "
            "'forge-jobs migrate up'"
        )
    is_new = create and all(is_new for *_, is_new in rows)
    if migrate and not is_new:
        rows = await _migrate(database, [each for each in MIGRATIONS if each.is_needed])
    entries = _merged(database, rows)
    refuse_newer(entries)
    needed = {each.number for each in MIGRATIONS if each.is_needed}
    missing = [one.version for one in entries if one.applied_at is None and one.version in needed]
    if missing:
        raise SchemaMismatch(
            f"the store's layout is older than this program: it lacks migration {missing[0]}; "
            "run `forge-jobs migrate up`"
        )
    return is_new


async def _migrate(database: Database, layouts: Sequence[Layout]) -> _Rows:
    """Note layouts, first beside the locators: what is said there must not let in a program that
    the fleet's records refuse.

    :raises Unavailable: one of the servers with locators does not answer
    """
    if database.is_cluster:
        number = max(_works_from(each, database) for each in layouts)
        request = request_of("move_end", works_from=number, is_end=False)
        bases = dict.fromkeys(database.places.old_bases(), request)
        await database.run("move_end", bases, bool)
    return await _run(database, "migrate", layouts)


async def _run(database: Database, mode: str, layouts: Sequence[Layout] | None = None) -> _Rows:
    known = [
        item_of(
            "schema",
            "migration",
            number=each.number,
            name=each.name,
            **{"from": _works_from(each, database)},
        )
        for each in (MIGRATIONS if layouts is None else layouts)
    ]
    request = request_of("schema", mode=mode, known=known)
    return await database.run_one("schema", database.keys.fleet, request, _Rows)


async def works_from(database: Database) -> int:
    """From which version on programs work with the store, which a newer one may have brought on.

    :raises Unavailable: the fleet's records do not answer
    """
    entries = _merged(database, await _run(database, "look"))
    return max(each.works_from for each in entries if each.applied_at)


async def layout_version(database: Database) -> int:
    """Return the newest migration that is applied."""
    entries = _merged(database, await _run(database, "look"))
    return max((each.version for each in entries if each.applied_at), default=0)


def check_noted(noted: int) -> None:
    """Check what stands beside the locators, where the fleet's records do not answer.

    :param noted: from which version on programs work with the store
    :raises SchemaMismatch: this one does not
    """
    name = MIGRATIONS[-1].name
    mine = [MigrationStatus(each.number, each.name, None, True, 1) for each in MIGRATIONS]
    refuse_newer([*mine, MigrationStatus(noted, name, None, noted <= MIGRATIONS[-1].number, noted)])


def _works_from(layout: Layout, database: Database) -> int:
    if layout.in_cluster is not None and database.is_cluster:
        return layout.in_cluster
    return layout.works_from


def _merged(database: Database, rows: _Rows) -> list[MigrationStatus]:
    """Return every migration that is known or applied, oldest first."""
    known = {each.number for each in MIGRATIONS}
    entries = {
        each.number: MigrationStatus(
            each.number, each.name, None, True, _works_from(each, database)
        )
        for each in MIGRATIONS
    }
    for number, time, name, works_from, _ in rows:
        entries[number] = MigrationStatus(number, name, from_us(time), number in known, works_from)
    return [entries[number] for number in sorted(entries)]
