"""Connections to one server: made, bounded, given back, and never asked the same thing twice.

Of redis-py only the connection is used: handshake, parser, TLS. The clients of redis-py are not
used, because they repeat a command whose reply was lost, and a command that had run ran twice.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import hiredis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

from forge_jobs.errors import StorageError
from forge_jobs.storage.pool_waits import waiting_for_connection
from forge_jobs.storage.redis.driver.address import Host, Login, RedisUrl, Tls, in_words
from forge_jobs.storage.redis.driver.errors import TRANSLATED, name_server
from forge_jobs.storage.redis.driver.replicas import Wait
from forge_jobs.storage.redis.driver.silence import SilentCalls

Command = Sequence[str | int | bytes]

Turn = Sequence[Command]
"""Commands for one server on one connection, without a pause. The first decides which server."""

_SURE_S = 0.5
"""No other server takes the place of one in so short a time after that was asked."""

_ABSENT_S = 10
"""A peer that has acknowledged nothing for so long is gone."""

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}


def _socket_options() -> dict[int, int]:
    # Names that this system does not know are left out.
    named = {**_KEEPALIVE, "TCP_USER_TIMEOUT": _ABSENT_S * 1000}
    return {getattr(socket, name): value for name, value in named.items() if hasattr(socket, name)}


async def connect(
    host: Host, login: Login, database: int, tls: Tls | None, limit: float
) -> Connection:
    """A connected and authenticated connection.

    :param limit: seconds until all of that is done
    :raises redis.exceptions.RedisError: the server is not there, or refuses
    """
    options: dict[str, Any] = {
        "host": host[0],
        "port": host[1],
        "username": login.username,
        "password": login.password,
        "db": database,
        "socket_connect_timeout": limit,
        # Calls have a limit of their own.
        "socket_timeout": None,
        "socket_keepalive": True,
        "socket_keepalive_options": _socket_options(),
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        # Needs a right that few give, and a round trip.
        "driver_info": None,
    }
    if tls is None:
        connection = Connection(**options)
    else:
        connection = SSLConnection(
            **options,
            ssl_ca_certs=tls.ca_certs,
            ssl_cert_reqs="required" if tls.verify else "none",
            ssl_check_hostname=tls.check_hostname,
            ssl_certfile=tls.certfile,
            ssl_keyfile=tls.keyfile,
        )
    try:
        async with asyncio.timeout(limit):
            await _greet(connection)
    except BaseException as error:
        await drop(connection)
        name_server(error, _words(connection))
        raise
    return connection


async def _greet(connection: Connection) -> None:
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise _reset_while_writing(error) from error


def _reset_while_writing(error: RuntimeError) -> NotConnected:
    # uvloop's word for a write to a connection that the other end has just reset.
    return NotConnected(str(error))


async def drop(connection: Connection) -> None:
    """Close a connection at once, for an end that may be silent for ever."""
    writer = connection._writer
    if writer is not None:
        # Closed in good order TLS would wait for the other end to say goodbye.
        writer.transport.abort()
    with suppress(*TRANSLATED):
        await connection.disconnect(nowait=True)


@asynccontextmanager
async def dropped_after(connection: Connection) -> AsyncIterator[None]:
    """Close a connection that messages arrive on, at the end of the block.

    A block that is cancelled ends because its loop ends: nothing would end a connection left half
    closed.
    """
    try:
        yield
    except asyncio.CancelledError:
        with suppress(*TRANSLATED):
            await connection.disconnect()
        raise
    finally:
        await drop(connection)


def _words(connection: Connection) -> str:
    return f"the server at {in_words(((connection.host, connection.port),))}"


async def connect_to(url: RedisUrl, host: Host) -> Connection:
    """A connection to one of the servers that keep jobs."""
    connection = await connect(host, url.login, url.database, url.tls, url.attempt)
    if url.kind == "cluster" and url.login.password is None:
        # Nothing has been said yet, and the system takes connections for a frozen server.
        try:
            async with asyncio.timeout(url.attempt):
                await converse(connection, [("PING",)])
        except BaseException as error:
            await drop(connection)
            name_server(error, _words(connection))
            raise
    return connection


async def converse(connection: Connection, commands: Sequence[Command]) -> list[Any]:
    """Send ``commands`` in one piece. Return the replies in order, an error as its exception."""
    for each in commands:
        if isinstance(each, Wait):
            each.host = (connection.host, connection.port)
    # The stub of the method knows tuples of one element only.
    packed = [hiredis.pack_command(tuple(each)) for each in commands]  # type: ignore[arg-type]
    try:
        await connection.send_packed_command(packed, check_health=False)
    except RuntimeError as error:
        raise _reset_while_writing(error) from error
    return [await _reply(connection) for _ in commands]


async def _reply(connection: Connection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


class Pool:
    """Connections to one server, at most ``size``. A call has one to itself, and may wait for it.

    :param make: a new connection
    :param has_left: whether another server has taken the place of the one at that host. Asked
        again and again while a call there is silent, and when a write has reached too few
        replicas. True ends the call
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Connection]],
        size: int,
        has_left: Callable[[Host], Awaitable[bool]] | None = None,
    ) -> None:
        self._make = make
        self._room = asyncio.Semaphore(size)
        self._size = size
        self._lent = 0
        self.waits = 0
        """Calls that had to wait for a connection."""
        self._idle: list[Connection] = []
        self._epoch = 0
        self._calls = None if has_left is None else SilentCalls(has_left)
        self._has_left = has_left
        self._sure_at = float("-inf")
        self._asking = asyncio.Lock()

    @property
    def in_use(self) -> int:
        """Connections that calls have now. One is handed on to a call that waits."""
        return self._size if self._room.locked() else self._lent

    async def converse(self, commands: Sequence[Command]) -> list[Any]:
        """:func:`converse` on any connection. Cancelled or failed, the outcome is unknown."""
        await self._have_room()
        try:
            epoch = self._epoch
            connection: Connection | None = None
            self._lent += 1
            try:
                connection = await self._take()
                if self._calls is not None:
                    self._calls.begun(connection)
                replies = await converse(connection, commands)
                if any(
                    isinstance(command, Wait) and command.is_short(reply)
                    for command, reply in zip(commands, replies, strict=True)
                ):
                    await self._check_place((connection.host, connection.port))
            except BaseException as error:
                if connection is not None:
                    await drop(connection)
                    name_server(error, _words(connection))
                # What ended this one may have ended all: the next calls start afresh.
                await self.renew()
                raise
            finally:
                self._lent -= 1
                if self._calls is not None and connection is not None:
                    self._calls.ended(connection)
            if any(isinstance(reply, (ReadOnlyError, MasterDownError)) for reply in replies):
                # No primary any more. A new connection finds the present one.
                await self.renew()
            if epoch == self._epoch:
                self._idle.append(connection)
            else:
                await connection.disconnect(nowait=True)
            return replies
        finally:
            self._room.release()

    async def _have_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        self.waits += 1
        with waiting_for_connection():
            await self._room.acquire()

    async def _check_place(self, host: Host) -> None:
        """Refuse the answer of a server that has been replaced and does not know it yet.

        Writes there without a replica are forgotten as soon as the server hears of the other one.

        :raises NotConnected: the server has been replaced
        """
        if self._has_left is None:
            return
        async with self._asking:
            asked_at = asyncio.get_running_loop().time()
            if asked_at < self._sure_at + _SURE_S:
                return
            try:
                has_left = await self._has_left(host)
            except (*TRANSLATED, StorageError):
                # No sentinel knows another primary.
                return
            if has_left:
                raise NotConnected("another server has its place")
            self._sure_at = asked_at

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if await _is_usable(connection):
                return connection
            # Closed by the server meanwhile.
            await drop(connection)
        return await self._make()

    async def renew(self) -> None:
        """Close all connections: idle ones now, others once their call has ended."""
        self._epoch += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            await drop(connection)

    async def close(self) -> None:
        """Close the idle connections, and wait until they are."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect()
        if self._calls is not None:
            await self._calls.close()


async def _is_usable(connection: Connection) -> bool:
    writer = connection._writer
    # One that was reset has nothing to be read, and is closing.
    if writer is None or writer.transport.is_closing():
        return False
    try:
        return not await connection.can_read()
    except TRANSLATED:
        return False
