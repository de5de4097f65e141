"""Runs a transaction script inside a transaction that a caller holds open.

The script commits or rolls back with the caller. A script runs in a savepoint: a failed script
leaves nothing behind in the caller's transaction, and that transaction can go on.
"""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from forge_jobs.errors import InvalidInput, StorageError, Unavailable, a_type
from forge_jobs.storage.sql.base.transaction import OVERTAKEN, Flavor, Overtaken, Tx

R = TypeVar("R")
Script = Callable[[Tx], R]

_TRIES = 20


async def run_in_callers_transaction(
    connection: object,
    script: Script[R],
    flavor: Flavor,
    store_id: str,
    short: Callable[[Connection], R | None] = lambda _: None,
) -> R:
    """Run ``script`` on a caller's SQLAlchemy connection or session, or driver connection.

    A Connection or Session runs the script in the calling thread, without awaiting anything. An
    AsyncConnection, an AsyncSession and a connection of the store's own driver are awaited.

    :param short: tried first, without a savepoint. None: ``short`` has done nothing
    :raises InvalidInput: ``connection`` is something else, or is of another database
    """

    def on_connection(plain: Connection) -> R:
        return _run(plain, script, flavor, store_id, short)

    def on_session(session: Session) -> R:
        # Connecting flushes nothing, and begins the session's transaction if none is open.
        return on_connection(session.connection())

    expected: tuple[type[Exception], ...] = (*flavor.driver_errors, OSError)
    try:
        match connection:
            case Connection():
                return on_connection(connection)
            case Session():
                return on_session(connection)
            case AsyncConnection():
                return await connection.run_sync(on_connection)
            case AsyncSession():
                return await connection.run_sync(on_session)
        if (lent := flavor.borrow(connection)) is not None:
            async with lent as its_own:
                return await its_own.run_sync(on_connection)
    except expected as error:
        raise flavor.translate(error) from None
    except SQLAlchemyError as error:
        name = type(error).__name__
        raise StorageError(f"the transaction cannot be used ({name}); roll it back") from None
    raise InvalidInput(
        "connection",
        f"is {a_type(connection)}",
        "give an SQLAlchemy Connection, AsyncConnection, Session or AsyncSession",
    )


def _run(
    connection: Connection,
    script: Script[R],
    flavor: Flavor,
    store_id: str,
    short: Callable[[Connection], R | None],
) -> R:
    foreign = InvalidInput(
        "connection",
        "is not of this store's database",
        "give a connection to the database of the store's URL",
    )
    if connection.dialect.name != flavor.name:
        raise foreign
    flavor.begin(connection)
    if (found := short(connection)) is not None:
        return found
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                if flavor.identity(connection) != store_id:
                    raise foreign
                with flavor.inside(connection):
                    tx = Tx(connection, flavor, None)
                    result = script(tx)
                    # After the caller's commit, watchers of the database read the raised signals
                    # there.
                    tx.finish()
                    return result
        except Overtaken:
            continue
    raise Unavailable(OVERTAKEN)
