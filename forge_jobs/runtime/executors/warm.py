"""Programs that are kept warm: lent for one run each, as many as have run at once."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from forge_jobs.runtime.executors.guarded import GuardedProgram

_IDLE_FOR = 60.0
"""Seconds after which a program without a job ends."""


class Lent(Protocol):
    """A program that runs jobs, one at a time.

    :ivar runs: how many jobs the program has been given
    :ivar idle_since: the time of the event loop at which the program was given back
    """

    program: GuardedProgram
    runs: int
    idle_since: float

    @property
    def is_alive(self) -> bool:
        """Return whether the program can take a job."""
        ...

    async def start(self) -> None:
        """Start the program.

        :raises NoProcess: says why there is none
        """
        ...

    def retire(self) -> None:
        """Let the program quit by itself. Kill what is left a second later."""
        ...

    def kill(self) -> None:
        """Kill the program and all processes that came from the program."""
        ...


P = TypeVar("P", bound=Lent)


class WarmPrograms(Generic[P]):
    """The programs of one kind in one pod.

    :param make: returns a program that has not been started
    """

    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._idle: list[P] = []
        self._all: set[P] = set()
        self._look: asyncio.TimerHandle | None = None
        self._closed = False

    async def take(self) -> P:
        """Return an idle program for one run, or start one.

        :raises NoProcess: none is idle, and none can be started
        """
        while self._idle:
            lent = self._idle.pop()
            if lent.is_alive:
                return lent
        return await self.start()

    async def start(self) -> P:
        """Start a program.

        :raises NoProcess: says why there is none
        """
        lent = self._make()
        self._all.add(lent)
        lent.program.ended.add_done_callback(lambda _: self._all.discard(lent))
        await lent.start()
        return lent

    def give_back(self, lent: P, max_runs: int | None) -> None:
        """Keep a program for the next run, or replace the program after ``max_runs``."""
        if not lent.is_alive or self._closed:
            lent.kill()
        elif max_runs is not None and lent.runs >= max_runs:
            lent.retire()
        else:
            lent.idle_since = self._loop.time()
            self._idle.append(lent)
            if self._look is None:
                self._look = self._loop.call_later(_IDLE_FOR, self._end_idle)

    async def close(self) -> None:
        """End all programs, and wait until they are gone."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        for lent in self._all:
            if lent in self._idle:
                lent.retire()
            else:
                lent.kill()
        if waited_for := {lent.program.ended for lent in self._all}:
            await asyncio.wait(waited_for)

    def _end_idle(self) -> None:
        self._look = None
        now = self._loop.time()
        kept: list[P] = []
        for lent in self._idle:
            if lent.is_alive and now - lent.idle_since < _IDLE_FOR:
                kept.append(lent)
            else:
                lent.retire()
        self._idle = kept
        if kept:
            rest = _IDLE_FOR - (now - kept[0].idle_since)
            self._look = self._loop.call_later(max(rest, 0.1), self._end_idle)
