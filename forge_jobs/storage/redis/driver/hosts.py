"""The answer of one of several hosts: a silent host keeps no caller waiting for the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from forge_jobs.storage.redis.driver.address import Host
from forge_jobs.storage.redis.driver.errors import is_unreached

T = TypeVar("T")

_STAGGER_S = 0.2
"""The next host is asked after so many seconds without an answer, and at once after a failure."""


class Hosts:
    """Hosts of which one answer is enough, in the order of the questions.

    A host that failed, or was silent until another had answered, is asked after all others until
    the host answers again.

    :param limit: seconds for one host
    :param in_turn: a host that has answered is asked after those that were not asked
    """

    def __init__(self, hosts: Iterable[Host], limit: float, *, in_turn: bool = False) -> None:
        self._well = list(dict.fromkeys(hosts))
        self._silent: list[Host] = []
        self._limit = limit
        self._in_turn = in_turn

    def replace(self, hosts: Iterable[Host]) -> None:
        """Ask these from now on. Hosts that stay keep their places."""
        wanted = set(known := list(hosts))
        self._well = [host for host in self._well if host in wanted]
        self._silent = [host for host in self._silent if host in wanted]
        old = {*self._well, *self._silent}
        self._well += dict.fromkeys(host for host in known if host not in old)

    def put_last(self, host: Host) -> None:
        """Ask this host after the others."""
        for hosts in (self._well, self._silent):
            if host in hosts:
                hosts.remove(host)
                self._silent.append(host)
                return

    def _has_answered(self, host: Host) -> None:
        for hosts in (self._well, self._silent):
            if host in hosts:
                hosts.remove(host)
        self._well.insert(len(self._well) if self._in_turn else 0, host)

    async def ask(
        self,
        question: Callable[[Host], Awaitable[T]],
        *,
        discard: Callable[[T], Awaitable[None]] | None = None,
    ) -> T:
        """Return the first answer of any host. The other questions are cancelled then.

        :param question: raises when the host has no answer
        :param discard: gets a second answer that came at the same moment
        :raises Exception: no host has an answer
        """
        waiting = iter([*self._well, *self._silent])
        asked: dict[asyncio.Task[T], Host] = {}
        winner: asyncio.Task[T] | None = None
        try:
            while winner is None:
                host = next(waiting, None)
                if host is not None:
                    asked[asyncio.create_task(self._ask_one(question, host))] = host
                under_way = [task for task in asked if not task.done()]
                if not under_way:
                    raise _telling([error for task in asked if (error := task.exception())])
                ended, _ = await asyncio.wait(
                    under_way,
                    timeout=None if host is None else _STAGGER_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                winner = next((task for task in ended if task.exception() is None), None)
            return winner.result()
        finally:
            if winner is not None:
                self._has_answered(asked[winner])
            for task, host in asked.items():
                if task is not winner:
                    self.put_last(host)
            await _end([task for task in asked if task is not winner], discard)

    async def _ask_one(self, question: Callable[[Host], Awaitable[T]], host: Host) -> T:
        async with asyncio.timeout(self._limit):
            return await question(host)


def _telling(errors: list[BaseException]) -> BaseException:
    """The error that says most: a refusal rather than silence."""
    return next((error for error in errors if not is_unreached(error)), errors[-1])


async def _end(
    tasks: list["asyncio.Task[T]"], discard: Callable[[T], Awaitable[None]] | None
) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        # To look at the error tells asyncio that the error is known.
        if not task.cancelled() and task.exception() is None and discard is not None:
            await discard(task.result())
