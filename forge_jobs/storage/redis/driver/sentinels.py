"""Sentinels: who the primary of a service is."""

from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as NotConnected

from forge_jobs.storage.redis.driver.address import Host, RedisUrl
from forge_jobs.storage.redis.driver.connections import connect, connect_to, converse, drop
from forge_jobs.storage.redis.driver.errors import TRANSLATED, name_server
from forge_jobs.storage.redis.driver.hosts import Hosts


class Sentinels:
    """The sentinels of one URL. Several are asked at once when the first are silent."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._hosts = Hosts(url.hosts, 2 * url.attempt)

    async def connect(self) -> Connection:
        """A connection to the primary.

        :raises redis.exceptions.ConnectionError: no sentinel knows one that says so itself
        """
        try:
            return await self._hosts.ask(self._connect, discard=drop)
        except TRANSLATED:
            problem = NotConnected(f"no sentinel knows a primary of {self._url.service!r}")
        name_server(problem, self._url.server)
        raise problem

    async def have_left(self, host: Host) -> bool:
        """Return whether a sentinel knows another primary than ``host``."""
        return await self._hosts.ask(self._ask) != host

    async def _connect(self, sentinel: Host) -> Connection:
        return await self._checked(await self._ask(sentinel))

    async def _ask(self, sentinel: Host) -> Host:
        url = self._url
        connection = await connect(sentinel, url.sentinel_login, 0, url.tls, url.attempt)
        try:
            question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", url.service)
            [found] = await converse(connection, [question])
        finally:
            await drop(connection)
        if not isinstance(found, list):
            raise NotConnected(
                f"the sentinel knows no service {url.service!r}; correct the name in the URL"
            )
        return found[0].decode(), int(found[1])

    async def _checked(self, primary: Host) -> Connection:
        connection = await connect_to(self._url, primary)
        try:
            [role] = await converse(connection, [("ROLE",)])
            # A sentinel may be behind. A server knows its own role.
            if not isinstance(role, list) or role[0] != b"master":
                raise NotConnected("the server is no primary")
        except BaseException:
            await drop(connection)
            raise
        return connection
