"""Applies numbered migrations, safely when many processes start at once.

Applied migrations are recorded in ``forge_migrations``. A program works with a schema that has
unknown migrations, if each of them declares that (``works_from``). So programs of the release
before may restart while a deployment is under way, and after the deployment was taken back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    Row,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateTable

from forge_jobs import stop_points
from forge_jobs.clock import from_us
from forge_jobs.errors import Conflict, SchemaMismatch
from forge_jobs.storage.backend import MigrationStatus, check_down, refuse_newer
from forge_jobs.storage.sql.base.tables import pods
from forge_jobs.storage.sql.base.transaction import Overtaken, Tx
from forge_jobs.storage.sql.migrations.files import Migration, known_migrations, statements_of

_applied = Table(
    "forge_migrations",
    MetaData(),
    Column("version", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("applied_at", BigInteger, nullable=False),
    # The oldest version whose programs work with the schema. NULL: only programs that know this
    # one.
    Column("works_from", Integer),
)
# Stores from before the last column have only the others.
_ALL_APPLIED = text("SELECT * FROM forge_migrations")
_ADD_WORKS_FROM = "ALTER TABLE forge_migrations ADD COLUMN works_from INTEGER"


def status(tx: Tx) -> list[MigrationStatus]:
    """Return all migrations, oldest first."""
    return _compared(tx, _read_applied(tx))


def up(tx: Tx) -> list[MigrationStatus]:
    """Apply missing migrations in one transaction, and return them.

    :raises SchemaMismatch: the schema is newer, and not one for this program
    """
    if not tx.flavor.try_lock(tx.connection, "schema"):
        raise Overtaken
    missing = find_missing(tx)
    if is_empty(tx):
        for statement in tx.flavor.place(tx.connection):
            tx.connection.exec_driver_sql(statement)
        tx.execute(CreateTable(_applied, if_not_exists=True))
    for migration in missing:
        run(tx, migration.statements)
        record(tx, migration)
    return applied(tx, missing)


def up_if_empty(tx: Tx) -> list[MigrationStatus] | None:
    """Run :func:`up` in an empty database. None in any other."""
    # The lock comes before the first look. Another program may have made the schema just before,
    # and a session of Postgres learns of that when a transaction first locks a table of the
    # catalog: a second look of one transaction may see what the first saw.
    is_mine = tx.flavor.try_lock(tx.connection, "schema")
    if not is_empty(tx):
        return None
    if not is_mine:
        raise Overtaken
    return up(tx)


def find_missing(tx: Tx) -> list[Migration]:
    """Return the migrations of this program that are not applied, oldest first.

    :raises SchemaMismatch: the schema is newer, and not one for this program
    """
    entries = status(tx)
    refuse_newer(entries)
    missing = {entry.version for entry in entries if entry.applied_at is None}
    return [each for each in known_migrations(tx.flavor.name) if each.version in missing]


def run(tx: Tx, statements: Sequence[str]) -> None:
    """Run the statements in the transaction."""
    for statement in statements:
        tx.connection.exec_driver_sql(statement)
        stop_points.reach_now("migrate:step")


def record(tx: Tx, migration: Migration) -> None:
    """Record that the migration has been applied."""
    columns = tx.execute(_ALL_APPLIED).keys()
    if "works_from" not in columns:
        tx.connection.exec_driver_sql(_ADD_WORKS_FROM)
    tx.execute(
        insert(_applied),
        {
            "version": migration.version,
            "name": migration.name,
            "checksum": migration.checksum,
            "applied_at": tx.now,
            "works_from": migration.works_from,
        },
    )


def applied(tx: Tx, migrations: Sequence[Migration]) -> list[MigrationStatus]:
    """Return the present status of these migrations."""
    versions = {migration.version for migration in migrations}
    return [entry for entry in status(tx) if entry.version in versions]


def down(tx: Tx, to: int) -> list[MigrationStatus]:
    """Undo migrations after version ``to``, newest first, and return them.

    :raises Conflict: undoing would lose data, or pods are at work
    """
    if not tx.flavor.try_lock(tx.connection, "schema"):
        raise Overtaken
    entries = [entry for entry in reversed(status(tx)) if entry.applied_at and entry.version > to]
    known = {migration.version: migration for migration in known_migrations(tx.flavor.name)}
    check_down(entries, {version for version, each in known.items() if each.down is not None})
    for entry in entries:
        query = known[entry.version].loses
        lost = tx.execute(text(query)).scalar() if query else None
        if lost is not None:
            raise Conflict(
                f"undoing migration {entry.version} would lose data: {lost}. Nothing was undone. "
                f"Programs from schema version {entry.works_from} on work with it as it is"
            )
    if entries:
        _refuse_at_work(tx)
    for entry in entries:
        run(tx, statements_of(known[entry.version].down or ""))
        tx.execute(delete(_applied).where(_applied.c.version == entry.version))
    return entries


def _refuse_at_work(tx: Tx) -> None:
    alive = select(pods.c.label).where(pods.c.lease_until > tx.now).order_by(pods.c.label)
    labels = tx.execute(alive).scalars().all()
    if labels:
        raise Conflict(
            f"{len(labels)} workers are at work and may need the schema as it is: "
            f"{', '.join(labels[:5])}; stop them first"
        )


def sql(tx: Tx) -> str:
    """Return the SQL that :func:`up` would run, empty when the schema is up to date."""
    missing = {entry.version for entry in status(tx) if entry.applied_at is None}
    place = "".join(f"{statement};\n" for statement in tx.flavor.place(tx.connection))
    return place + "\n".join(
        f"-- {migration.version:04} {migration.name}\n{migration.text}"
        for migration in known_migrations(tx.flavor.name)
        if migration.version in missing
    )


def is_empty(tx: Tx) -> bool:
    """Return whether no migration has ever been applied."""
    return not _read_applied(tx)


def check(tx: Tx) -> None:
    """Refuse a schema this program cannot work with.

    :raises SchemaMismatch: the schema is older, or newer and not for this program. The text names
        the fix
    """
    applied = _read_applied(tx)
    entries = _compared(tx, applied)
    refuse_newer(entries)
    missing = [entry.version for entry in entries if entry.applied_at is None]
    for migration in known_migrations(tx.flavor.name):
        row = applied.get(migration.version)
        if row is not None and row.checksum != migration.checksum:
            raise SchemaMismatch(
                f"the store's schema was made by another text of migration {migration.version} "
                "than this program's, one that was never released; start with a new database"
            )
    if missing:
        raise SchemaMismatch(
            f"the store's schema is older than this program: it lacks migration {missing[0]}; "
            "run `forge-jobs migrate up`"
        )


def schema_version(tx: Tx) -> int:
    """Return the newest migration that is applied, 0 for none."""
    return max(_read_applied(tx), default=0)


def _read_applied(tx: Tx) -> dict[int, Row[Any]]:
    if not inspect(tx.connection).has_table(_applied.name):
        return {}
    return {row.version: row for row in tx.execute(_ALL_APPLIED)}


def _compared(tx: Tx, applied: Mapping[int, Row[Any]]) -> list[MigrationStatus]:
    """Return applied migrations and those that this program knows, oldest first."""
    known = {migration.version: migration for migration in known_migrations(tx.flavor.name)}
    entries = []
    for version in sorted(known.keys() | applied.keys()):
        row, migration = applied.get(version), known.get(version)
        works_from = migration.works_from if migration else getattr(row, "works_from", None)
        entries.append(
            MigrationStatus(
                version,
                migration.name if migration else applied[version].name,
                from_us(row.applied_at) if row else None,
                migration is not None,
                version if works_from is None else works_from,
            )
        )
    return entries
