"""The hosts of one database: in which order they are asked, and how long each may take."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import asyncpg

HEAD_START_S = 0.5
"""When a host has not answered for so long, the next is asked as well."""

READ_WRITE, ANY, PRIMARY = "read-write", "any", "primary"


class Address(NamedTuple):
    """The address of a server: a host, or the folder of a socket. None: the driver finds it."""

    host: str | None
    port: int | None

    def __str__(self) -> str:
        if self.host is not None and self.host.startswith("/"):
            return self.host
        host = self.host or "localhost"
        return f"{f'[{host}]' if ':' in host else host}:{self.port or 5432}"


Connect = Callable[[Address], Awaitable[Any]]


class Hosts:
    """Servers of which one takes writes. Shared by all event loops of the process.

    A host that failed or stayed silent is asked last from then on, so that it costs one attempt and
    not one per call.

    :param wanted: the role a host must have, as ``target_session_attrs`` of libpq
    """

    def __init__(self, addresses: Sequence[Address], wanted: str) -> None:
        self.wanted = wanted
        self._lock = threading.Lock()
        self._addresses = tuple(addresses)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The hosts in the order in which they are asked."""
        return self._addresses

    async def first(self, connect: Connect) -> Any:
        """Connect to the first host of the wanted role. Each host is asked once.

        :param connect: opens a connection within a limit of its own, or raises
        :raises Exception: the most telling error of the hosts
        """
        left = list(self._addresses)
        if len(left) == 1:
            return await connect(left[0])
        asked: dict[asyncio.Task[Any], Address] = {}
        failed: list[Exception] = []
        try:
            while left or asked:
                if left:
                    address = left.pop(0)
                    asked[asyncio.ensure_future(connect(address))] = address
                found = await self._answer(asked, failed, HEAD_START_S if left else None)
                if found is not None:
                    # Hosts that are still being asked had their time.
                    for address in asked.values():
                        self._ask_last(address)
                    return found
        finally:
            await _give_up(list(asked))
        raise max(failed, key=_tells)

    async def _answer(
        self,
        asked: dict[asyncio.Task[Any], Address],
        failed: list[Exception],
        timeout: float | None,
    ) -> Any:
        """Return the first good answer. None: a host failed, or none has answered in time."""
        done, _ = await asyncio.wait(asked, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        found = None
        # In the order in which they were asked.
        for task in [each for each in asked if each in done]:
            error = task.exception()
            if error is None and found is None:
                del asked[task]
                found = task.result()
            elif error is not None:
                self._ask_last(asked.pop(task))
                if not isinstance(error, Exception):
                    raise error
                failed.append(error)
        return found

    def _ask_last(self, address: Address) -> None:
        with self._lock:
            others = (each for each in self._addresses if each != address)
            self._addresses = (*others, address)


async def _give_up(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for late in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(late, BaseException):
            late.terminate()


def _tells(error: Exception) -> int:
    """Return how much an error says about what is to be changed."""
    if isinstance(error, ssl.SSLError):
        return 2
    if isinstance(error, asyncpg.CannotConnectNowError | OSError):
        return 0
    return 1 if isinstance(error, asyncpg.InternalClientError) else 2
