"""The event loop that an object belongs to, and the turns of an event loop."""

import asyncio
import types
from collections.abc import Generator

from forge_jobs.errors import WrongEventLoop


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Go on in the next turn of the event loop.

    For the first line of a task whose loop has eager tasks (``asyncio.eager_task_factory``). Such a
    task takes the first step inside ``create_task``, when the caller has not got the task yet, and
    a task that begins another at the end of its own would take all steps of all in one stack.
    """
    yield


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
