"""The event loop that an object belongs to."""

import asyncio

from forge_jobs.errors import WrongEventLoop


class HomeLoop:
    """The event loop of an object: the loop of the first use.

    :param name: of the object, for people
    """

    __slots__ = ("_loop", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        :raises WrongEventLoop: the object belongs to another loop. A caller on this loop would wait
            for answers that arrive on the other
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise WrongEventLoop(
                    f"{self._name} belongs to another event loop, the one that used it first; "
                    "elsewhere use the blocking client (client.sync, or SyncJobClient), or open a "
                    "storage and a client of this loop"
                )
            self._loop = loop
        return loop
