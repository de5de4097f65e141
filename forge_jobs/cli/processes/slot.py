"""The processes of one number: kept alive, and replaced when they have reached a limit."""

import asyncio
import signal
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from forge_jobs.cli.failures import BAD_INPUT
from forge_jobs.cli.processes.link import RETIRE, STOP
from forge_jobs.cli.processes.process import SUCCESSOR, Child, Process
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

_PAUSES = Pauses(1.0, 30.0, jitter=0)
_SETTLED_AFTER = 60.0
"""Seconds. A process that lived so long starts the pauses from the first again."""


class Slot:
    """The processes of one number: the first, and the successors.

    :param child: started anew each time
    :param restart: start the process again also after an end with 0
    :param turn: held while a process of any slot is replaced, so that one at a time is
    :param turn_at_most: how long a process that still runs its handlers keeps the turn
    """

    def __init__(
        self,
        number: int,
        child: Child,
        *,
        restart: bool,
        turn: asyncio.Lock,
        turn_at_most: timedelta,
    ) -> None:
        self.number = number
        self.exit_code: int | None = None
        """Of the last process. None before one has ended."""
        self.refused = False
        """The first process has ended for bad input."""
        self._child = child
        self._restart = restart
        self._turn = turn
        self._turn_at_most = turn_at_most
        self._processes: set[Process] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._asked: set[Process] = set()
        """Processes that stop already. The first stop of all is no second one for them."""
        self._stopping = False
        self._pause = Wakeup()
        self._failures = 0
        self._has_run = False

    async def run(self) -> None:
        """Start the process, again whenever the process dies, until stopped or done."""
        process = await self._start()
        while process is not None:
            await first_of(process.end, *self._causes(process))
            process = await self._next(process)
        for retiring in tuple(self._retiring):
            await retiring
        if self._stopping and self.exit_code in (None, -signal.SIGTERM):
            # Stopped before the process listened to signals, and so before it held anything.
            self.exit_code = 0

    def _causes(self, process: Process) -> "Sequence[asyncio.Future[None]]":
        """Return what another process may follow for, beside the end of this one."""
        return [] if self._stopping else [process.full]

    async def _next(self, process: Process) -> Process | None:
        """Return the process that follows. None: no process does."""
        if process.end.done():
            return await self._start_again(process)
        return await self._replace(process)

    def stop(self) -> None:
        """Ask the processes to stop, and start no other. A second time: to hurry."""
        self._stopping = True
        self._pause.wake()
        for process in self._processes - self._asked:
            process.say(STOP)
        self._asked.clear()

    def kill(self) -> None:
        """Kill the processes that still run."""
        for process in tuple(self._processes):
            process.kill()

    async def _start(self, *options: str) -> Process | None:
        """Start a process, with further options. Try again while the system refuses.

        None: a stop was asked for.
        """
        while not self._stopping:
            try:
                process = await Process.start(self._child, options)
            except (OSError, RuntimeError) as error:
                self._failures += 1
                pause = _PAUSES.after(self._failures)
                logger.error(
                    "worker process %d could not be started: %s; the next try is in %.0f s",
                    self.number,
                    error,
                    pause,
                )
                await self._pause.wait(timedelta(seconds=pause))
                continue
            self._processes.add(process)
            process.end.add_done_callback(partial(self._ended, process))
            if self._stopping:
                process.say(STOP)
            return process
        return None

    def _ended(self, process: Process, _: object) -> None:
        self._processes.discard(process)

    async def _start_again(self, ended: Process) -> Process | None:
        """Start the process that follows one that has ended. None: no process follows."""
        self.exit_code = ended.end.result()
        self.refused = self.exit_code == BAD_INPUT and not self._has_run
        self._has_run = True
        if self._stopping or self.refused or (self.exit_code == 0 and not self._restart):
            return None
        if ended.leaves.done():
            logger.info("worker process %d has stopped by request: none follows", self.number)
            return None
        await self._pause_after(ended)
        return await self._start()

    async def _pause_after(self, ended: Process) -> None:
        self._failures = 0 if ended.age >= _SETTLED_AFTER else self._failures + 1
        pause = _PAUSES.after(self._failures)
        logger.warning(
            "worker process %d ended with %s after %.1f s; it is started again in %.0f s",
            self.number,
            in_words(ended.end.result()),
            ended.age,
            pause,
        )
        await self._pause.wait(timedelta(seconds=pause))

    async def _replace(self, old: Process) -> Process:
        """Start a successor, and let ``old`` retire once the successor runs.

        Return the successor, or ``old`` when ``old`` has ended or is stopped before.
        """
        self._has_run = True
        turn = asyncio.ensure_future(self._turn.acquire())
        await first_of(turn, old.end)
        if not turn.done():
            turn.cancel()
            return old
        successor = None if self._stopping else await self._successor(old)
        if successor is None:
            self._turn.release()
            await first_of(old.end)
            return old
        old.say(RETIRE)
        retiring = asyncio.ensure_future(self._see_off(old))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)
        return successor

    async def _successor(self, old: Process) -> Process | None:
        """Return a process whose pod runs. None: ``old`` has ended, or a stop was asked for."""
        while not old.end.done():
            process = await self._start(SUCCESSOR)
            if process is None:
                return None
            await first_of(process.ready, process.end, old.end)
            if not process.end.done():
                self._failures = 0
                return process
            if self._stopping:
                return None
            await self._pause_after(process)
        return None

    async def _see_off(self, old: Process) -> None:
        """Wait for the end of a process that retires, and give the turn to the next slot."""
        await asyncio.wait({old.end}, timeout=self._turn_at_most.total_seconds())
        self._turn.release()
        code = await old.end
        if code:
            logger.warning(
                "worker process %d, whose successor runs already, ended with %s; jobs that it had "
                "in progress are revived as crashed",
                self.number,
                in_words(code),
            )
        else:
            logger.info("worker process %d was replaced after %.0f s", self.number, old.age)


async def first_of(*futures: "asyncio.Future[Any]") -> None:
    """Wait until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def in_words(exit_code: int) -> str:
    """Return an exit code for people."""
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
