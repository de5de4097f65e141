"""Applies numbered migrations, safely when many processes start at once.

A migration is a file ``NNNN_name.<flavor>.sql`` beside this module; its statements end with a
semicolon at the end of a line outside of ``$$``. What has been applied is recorded in
``forge_migrations``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    Row,
    Table,
    Text,
    insert,
    inspect,
    select,
)
from sqlalchemy.schema import CreateTable

from forge_jobs import stop_points
from forge_jobs.clock import from_us
from forge_jobs.errors import SchemaMismatch
from forge_jobs.storage.backend import MigrationStatus
from forge_jobs.storage.sql.transaction import Tx

_applied = Table(
    "forge_migrations",
    MetaData(),
    Column("version", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("applied_at", BigInteger, nullable=False),
)


@dataclass(frozen=True)
class Migration:
    """One schema change."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        found = [""]
        for part in self.text.split(";\n"):
            if found[-1].count("$$") % 2:
                found[-1] += f";\n{part}"
            else:
                found.append(part)
        return [part.strip() for part in found if part.strip()]


@cache
def known_migrations(flavor: str) -> tuple[Migration, ...]:
    """Every migration of this program for one database, in order."""
    suffix = f".{flavor}.sql"
    found = []
    for file in files(__package__).iterdir():
        if file.name.endswith(suffix):
            version, _, name = file.name.removesuffix(suffix).partition("_")
            found.append(Migration(int(version), name, file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.version))


def status(tx: Tx) -> list[MigrationStatus]:
    """All migrations, oldest first."""
    return _compared(tx, _read_applied(tx))


def up(tx: Tx) -> list[MigrationStatus]:
    """Apply what is missing; what was applied now.

    :raises SchemaMismatch: the schema is newer than this program
    """
    tx.flavor.lock(tx.connection, "schema")
    before = status(tx)
    _refuse_newer(before)
    missing = {entry.version for entry in before if entry.applied_at is None}
    if not before or len(missing) == len(before):
        for statement in tx.flavor.place(tx.connection):
            tx.connection.exec_driver_sql(statement)
        tx.execute(CreateTable(_applied, if_not_exists=True))
    for migration in known_migrations(tx.flavor.name):
        if migration.version in missing:
            _apply(tx, migration)
    return [entry for entry in status(tx) if entry.version in missing]


def sql(tx: Tx) -> str:
    """What :func:`up` would run, as text; empty when the schema is up to date."""
    missing = {entry.version for entry in status(tx) if entry.applied_at is None}
    place = "".join(f"{statement};\n" for statement in tx.flavor.place(tx.connection))
    return place + "\n".join(
        f"-- {migration.version:04} {migration.name}\n{migration.text}"
        for migration in known_migrations(tx.flavor.name)
        if migration.version in missing
    )


def is_empty(tx: Tx) -> bool:
    """Whether no migration has ever been applied."""
    return not _read_applied(tx)


def check(tx: Tx) -> None:
    """Refuse a schema this program cannot work with.

    :raises SchemaMismatch: it is older or newer; the text names the fix
    """
    applied = _read_applied(tx)
    entries = _compared(tx, applied)
    _refuse_newer(entries)
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


def _refuse_newer(entries: Sequence[MigrationStatus]) -> None:
    newer = [entry.version for entry in entries if not entry.known]
    if newer:
        raise SchemaMismatch(
            f"the store's schema has migration {newer[-1]}, which this program does not know; "
            "upgrade forge-jobs to the release that the other programs run"
        )


def _read_applied(tx: Tx) -> dict[int, Row[Any]]:
    if not inspect(tx.connection).has_table(_applied.name):
        return {}
    return {row.version: row for row in tx.execute(select(_applied))}


def _compared(tx: Tx, applied: Mapping[int, Row[Any]]) -> list[MigrationStatus]:
    """What is applied and what this program knows, oldest first."""
    known = {migration.version: migration.name for migration in known_migrations(tx.flavor.name)}
    names = {version: row.name for version, row in applied.items()} | known
    return [
        MigrationStatus(
            version,
            names[version],
            from_us(applied[version].applied_at) if version in applied else None,
            version in known,
        )
        for version in sorted(names)
    ]


def _apply(tx: Tx, migration: Migration) -> None:
    for statement in migration.statements:
        tx.connection.exec_driver_sql(statement)
        stop_points.reach_now("migrate:step")
    tx.execute(
        insert(_applied),
        {
            "version": migration.version,
            "name": migration.name,
            "checksum": migration.checksum,
            "applied_at": tx.now,
        },
    )
