"""Errors of a store, by cause: a value, an outage, or a fault that an operator has to mend."""

import socket
import sqlite3

import asyncpg
import pytest
from redis import exceptions as redis
from sqlalchemy.exc import DBAPIError

from forge_jobs.errors import InvalidInput, StorageError, StorageRefused, Unavailable
from forge_jobs.storage.redis.driver import errors as of_redis
from forge_jobs.storage.sql.postgres.driver import errors as of_postgres
from forge_jobs.storage.sql.sqlite import driver_errors as of_sqlite

AWAY = [
    "08006",
    "0A000",
    "23505",
    "25006",
    "40001",
    "40P01",
    "53100",
    "53300",
    "55P03",
    "57014",
    "57P01",
    "57P03",
    "58030",
]
REFUSALS = [
    "28000",
    "28P01",
    "3F000",
    "42501",
    "42P01",
    "42703",
    "54000",
    "54023",
    "55000",
    "P0001",
    "XX000",
    "XX001",
    "ZZ999",
]


def _postgres(code: str) -> StorageError:
    error = asyncpg.PostgresError.new({"C": code, "M": "text of the driver"})
    return of_postgres.translate(error)


@pytest.mark.parametrize("code", ["22001", "22P02", "22021", "23502", "23503", "23514", "54001"])
def test_postgres_condemns_values_by_these_alone(code: str) -> None:
    found = _postgres(code)
    assert isinstance(found, InvalidInput)
    assert code in str(found)


@pytest.mark.parametrize("code", AWAY)
def test_postgres_is_away_by_these(code: str) -> None:
    assert type(_postgres(code)) is Unavailable


@pytest.mark.parametrize("code", REFUSALS)
def test_postgres_refuses_by_all_others(code: str) -> None:
    assert type(_postgres(code)) is StorageRefused


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (asyncpg.InternalClientError("got result for unknown protocol state"), "was lost"),
        (asyncpg.InterfaceError("connection is closed"), "was lost"),
        (ConnectionResetError(104, "reset"), "was lost"),
        (ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 5432)"), "was refused"),
        (socket.gaierror(-2, "Name or service not known"), "has no address"),
        (OSError(113, "No route to host 10.0.0.1"), "could not be made"),
    ],
)
def test_an_unreached_server_is_named_without_words_of_the_driver(
    error: Exception, why: str
) -> None:
    found = of_postgres.translate(error, "the database at db:5432")
    assert type(found) is Unavailable
    assert str(found).startswith("the database at db:5432 cannot be reached: ")
    assert str(found).endswith(why)


def test_what_no_rule_names_is_told_without_words_of_the_driver() -> None:
    for found in (
        of_postgres.translate(DBAPIError("SELECT", (), ValueError("text"))),
        of_redis.translate(redis.ResponseError("ERR what nobody has named")),
    ):
        assert type(found) is StorageRefused
        assert "Error" not in str(found)
        assert "text" not in str(found)


def _sqlite(code: int, text: str = "") -> StorageError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return of_sqlite.translate(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_TOOBIG, InvalidInput),
        (sqlite3.SQLITE_MISMATCH, InvalidInput),
        (sqlite3.SQLITE_CONSTRAINT_CHECK, InvalidInput),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, InvalidInput),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, StorageRefused),
        (sqlite3.SQLITE_ERROR, StorageRefused),
        (sqlite3.SQLITE_AUTH, StorageRefused),
        (sqlite3.SQLITE_CORRUPT, StorageRefused),
        (sqlite3.SQLITE_NOTADB, StorageRefused),
        (sqlite3.SQLITE_SCHEMA, StorageRefused),
        (sqlite3.SQLITE_BUSY, Unavailable),
        (sqlite3.SQLITE_FULL, Unavailable),
        (sqlite3.SQLITE_IOERR_WRITE, Unavailable),
        (sqlite3.SQLITE_READONLY_DBMOVED, Unavailable),
        (sqlite3.SQLITE_CANTOPEN, Unavailable),
    ],
)
def test_sqlite_is_told_apart_by_its_codes(code: int, expected: type[StorageError]) -> None:
    assert type(_sqlite(code)) is expected


def test_sqlite_without_tables_says_what_to_do() -> None:
    found = _sqlite(sqlite3.SQLITE_ERROR, "no such table: forge_jobs")
    assert "migrate up" in str(found)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis.AuthenticationError("WRONGPASS"), StorageRefused),
        (redis.AuthenticationError("Authentication required."), StorageRefused),
        (redis.NoPermissionError("this user has no permissions"), StorageRefused),
        (redis.ResponseError("ERR what nobody has named"), StorageRefused),
        (redis.ResponseError("WRONGTYPE Operation against a key"), of_redis.WrongType),
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), Unavailable),
        (redis.ClusterDownError("The cluster is down"), Unavailable),
        (redis.MasterDownError("Link with MASTER is down"), Unavailable),
        (redis.ReadOnlyError("You can't write against a read only replica."), Unavailable),
        (redis.OutOfMemoryError("command not allowed"), Unavailable),
        (redis.ResponseError("MISCONF Redis is configured to save"), Unavailable),
        (redis.ResponseError("NOREPLICAS Not enough good replicas"), Unavailable),
    ],
)
def test_redis_is_told_apart_by_its_words(error: Exception, expected: type[StorageError]) -> None:
    assert type(of_redis.translate(error)) is expected
