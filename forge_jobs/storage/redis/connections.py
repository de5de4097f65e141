"""Connections to one server: made, bounded, given back, and never asked the same thing twice.

Of redis-py this uses the connection: its handshake, its parser, its TLS. Its clients are not used,
for they repeat a command whose reply was lost: one that had run ran twice.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

from forge_jobs.storage.redis.address import Host, Login, RedisUrl, Tls, in_words
from forge_jobs.storage.redis.errors import name_server

Command = Sequence[str | int | bytes]

_CONNECT_S = 5.0
_ABSENT_S = 10
"""A peer that has acknowledged nothing for so long is gone."""

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}


def _socket_options() -> dict[int, int]:
    # Names that this system does not know are left out.
    named = {**_KEEPALIVE, "TCP_USER_TIMEOUT": _ABSENT_S * 1000}
    return {getattr(socket, name): value for name, value in named.items() if hasattr(socket, name)}


async def connect(host: Host, login: Login, database: int, tls: Tls | None) -> Connection:
    """A connected and authenticated connection.

    :raises redis.exceptions.RedisError: the server is not there, or refuses
    """
    options: dict[str, Any] = {
        "host": host[0],
        "port": host[1],
        "username": login.username,
        "password": login.password,
        "db": database,
        "socket_connect_timeout": _CONNECT_S,
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
        await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException as error:
        await connection.disconnect(nowait=True)
        name_server(error, _words(connection))
        raise
    return connection


def _words(connection: Connection) -> str:
    return f"the server at {in_words(((connection.host, connection.port),))}"


async def connect_to(url: RedisUrl, host: Host) -> Connection:
    """A connection to one of the servers that keep jobs."""
    return await connect(host, url.login, url.database, url.tls)


async def converse(connection: Connection, commands: Sequence[Command]) -> list[Any]:
    """Send ``commands`` in one piece; their replies in order, an error reply as its exception."""
    # Its stub knows tuples of one only.
    packed = [hiredis.pack_command(tuple(each)) for each in commands]  # type: ignore[arg-type]
    await connection.send_packed_command(packed, check_health=False)
    return [await _reply(connection) for _ in commands]


async def _reply(connection: Connection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


class Pool:
    """Connections to one server, at most ``size``; a call has one to itself, and may wait for it.

    :param make: a new connection
    """

    def __init__(self, make: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._make = make
        self._room = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._epoch = 0

    async def converse(self, commands: Sequence[Command]) -> list[Any]:
        """:func:`converse` on any connection. Cancelled or failed, the outcome is unknown."""
        async with self._room:
            epoch = self._epoch
            connection: Connection | None = None
            try:
                connection = await self._take()
                replies = await converse(connection, commands)
            except BaseException as error:
                if connection is not None:
                    await connection.disconnect(nowait=True)
                    name_server(error, _words(connection))
                # What ended this one may have ended all: the next calls start afresh.
                await self.renew()
                raise
            if any(isinstance(reply, (ReadOnlyError, MasterDownError)) for reply in replies):
                # No primary any more. Whoever is now is found by connecting.
                await self.renew()
            if epoch == self._epoch:
                self._idle.append(connection)
            else:
                await connection.disconnect(nowait=True)
            return replies

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_connected and not await connection.can_read():
                return connection
            # Closed by the server meanwhile.
            await connection.disconnect(nowait=True)
        return await self._make()

    async def renew(self) -> None:
        """Close all connections: idle ones now, others once their call has ended."""
        self._epoch += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close the idle connections, and wait until they are."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect()
