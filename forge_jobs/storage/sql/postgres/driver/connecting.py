"""The options of a URL as connections need them, and connections of the driver's own."""

import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from forge_jobs.storage.sql.postgres.driver.address import Sockets
from forge_jobs.storage.sql.postgres.driver.hosts import ANY, Address, Hosts
from forge_jobs.storage.sql.postgres.driver.sessions import session

_STATEMENTS = 256
"""How many prepared statements each connection keeps: more than the store has."""

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection


@dataclass(frozen=True)
class PostgresOptions:
    """How to reach a database.

    :param dsn: for the driver, with the password and without hosts
    :param hosts: the servers of the database
    :param shown: the part of the URL that may be shown
    :param server: how to call the server in errors, with host and port
    :param schema: the schema of the tables
    :param pool_size: connections of one bundle at most
    :param timeout: seconds after which any call gives up
    :param connect_s: seconds that an attempt to connect to one of the hosts takes at most
    :param sockets: when a silent connection counts as lost
    :param tls: verifies the server in place of the dsn's options
    :param pooled: a pooler stands between: no statement stays prepared
    :param wakes: False: no listener, all waiters poll
    :param direct: where to LISTEN, when the URL leads to a pooler. None: as the URL says
    :param program: ``application_name`` of the connections
    """

    dsn: str = field(repr=False)
    hosts: Hosts = field(repr=False)
    shown: str
    server: str = "the database"
    schema: str = "public"
    pool_size: int = 10
    timeout: float = 5.0
    connect_s: float = 5.0
    sockets: Sockets = field(default_factory=Sockets)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    pooled: bool = False
    wakes: bool = True
    direct: Hosts | None = field(default=None, repr=False)
    server_settings: Mapping[str, str] = field(default_factory=lambda: {"jit": "off"})
    program: str = "forge_jobs"

    @property
    def listens(self) -> bool:
        """True when notifications can arrive: no pooler gives a LISTEN back to the session that
        asked."""
        return self.wakes and (not self.pooled or self.direct is not None)

    @property
    def quoted_schema(self) -> str:
        """The schema as an identifier."""
        return '"' + self.schema.replace('"', '""') + '"'


class KeptAlive(_Connection):
    """A connection of the driver's with TCP keepalive."""

    __slots__ = ("_socket",)

    def __init__(self, protocol: Any, transport: Any, *rest: Any, **options: Any) -> None:
        super().__init__(protocol, transport, *rest, **options)
        self._socket = transport.get_extra_info("socket")

    def keep_alive(self, wanted: Sockets) -> None:
        """Set TCP keepalive on the socket, as far as the system knows the options."""
        found = self._socket
        if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
            return
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(wanted.keeps_alive))
        for name, value in (
            ("TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE", wanted.idle),
            ("TCP_KEEPINTVL", wanted.interval),
            ("TCP_KEEPCNT", wanted.count),
            ("TCP_USER_TIMEOUT", wanted.unanswered_ms),
        ):
            option = getattr(socket, name, None)
            if option is not None and value:
                found.setsockopt(socket.IPPROTO_TCP, option, value)


def statements_kept(options: PostgresOptions) -> int:
    """Return how many prepared statements a connection keeps."""
    return 0 if options.pooled else _STATEMENTS


async def connect(options: PostgresOptions, *, direct: bool = False) -> Any:
    """Open a connection of the driver's own.

    :param direct: past the pooler, when the options say how
    """
    hosts = options.direct if direct and options.direct is not None else options.hosts

    # The driver's types know only one of its enumerations, and no list of options.
    connect: Any = asyncpg.connect

    async def opened(address: Address) -> Any:
        connection: Any = await connect(
            options.dsn,
            host=address.host,
            port=address.port,
            target_session_attrs=None if hosts.wanted == ANY else hosts.wanted,
            ssl=options.tls,
            timeout=options.connect_s,
            command_timeout=options.timeout + 1,
            statement_cache_size=statements_kept(options),
            # A pooler refuses unknown settings, and gives each transaction to another session.
            server_settings={
                "application_name": options.program,
                **({} if options.pooled else session(options)),
            },
            connection_class=KeptAlive,
        )
        connection.keep_alive(options.sockets)
        return connection

    return await hosts.first(opened)
