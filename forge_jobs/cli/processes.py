"""Several worker processes under one command: kept alive, and stopped together."""

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from forge_jobs.cli.failures import BAD_INPUT
from forge_jobs.clock import SystemClock
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.pod.signals import on_stop_signals
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

_PAUSES = Pauses(1.0, 30.0, jitter=0)
_SETTLED_AFTER = 60.0
"""Seconds. A process that lived so long starts the pauses from the first again."""

_BEYOND_GRACE = timedelta(seconds=8)
"""Twice the longest time of a stop beyond the grace."""


class Child(NamedTuple):
    """The start of a process: a command and an environment.

    The command is to stop when stdin closes, so that no worker outlives a parent that was
    killed.
    """

    command: Sequence[str]
    environ: Mapping[str, str]


class Slot:
    """The processes of one number: the first, and the successors.

    :param child: started anew each time
    :param restart: start the process again also after an end with 0
    """

    def __init__(self, number: int, child: Child, *, restart: bool) -> None:
        self.number = number
        self.exit_code: int | None = None
        """Of the last process. None before one has ended."""
        self.refused = False
        """The first process has ended for bad input."""
        self._child = child
        self._restart = restart
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._pause = Wakeup()

    async def run(self) -> None:
        """Start the process, again whenever the process dies, until stopped or done."""
        clock, failures, has_run = SystemClock(), 0, False
        while not self._stopping:
            started_at = clock.elapsed()
            self.exit_code = await self._run_once()
            lived = clock.elapsed() - started_at
            if self._stopping and self.exit_code == -signal.SIGTERM:
                # Stopped before the process listened to signals, and so before it held anything.
                self.exit_code = 0
            self.refused = self.exit_code == BAD_INPUT and not has_run
            if self._stopping or self.refused:
                return
            has_run = True
            if self.exit_code == 0 and not self._restart:
                return
            failures = 0 if lived >= _SETTLED_AFTER else failures + 1
            pause = _PAUSES.after(failures)
            logger.warning(
                "worker process %d ended with %s after %.1f s; it is started again in %.0f s",
                self.number,
                _told(self.exit_code),
                lived,
                pause,
            )
            await self._pause.wait(timedelta(seconds=pause))

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            *self._child.command,
            stdin=asyncio.subprocess.PIPE,
            env=self._child.environ,
            # Ctrl-C in a terminal goes to all processes there. Ours hear of it from the parent.
            start_new_session=True,
        )
        if self._stopping:
            self.send(signal.SIGTERM)
        return await self._process.wait()

    def stop(self) -> None:
        """Ask the process to stop, and start no other. A second time: to hurry."""
        self._stopping = True
        self._pause.wake()
        self.send(signal.SIGTERM)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the process, if the process runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signum)


async def run_processes(
    children: Sequence[Child],
    *,
    grace: timedelta,
    restart: bool,
) -> int:
    """Keep one process per child until a stop signal, or until all are done.

    A process that dies is started again, after a pause that doubles from 1 s to 30 s. The first
    signal stops all at once, a second one hurries them. A process that still runs a little after
    ``grace`` is killed. A process that ends for bad input ends all: another start would not help.
    A process that has run with that input before is started again: the port is still held, for
    example.

    :param grace: what the processes themselves give their handlers
    :returns: 0 when the last of each ended with 0. 2 for bad input. Else 1
    """
    slots = [Slot(number, child, restart=restart) for number, child in enumerate(children, start=1)]
    asked = asyncio.Event()

    def stop() -> None:
        asked.set()
        for slot in slots:
            slot.stop()

    with on_stop_signals(stop, stop):
        tasks = {asyncio.ensure_future(slot.run()) for slot in slots}
        killer = asyncio.ensure_future(_kill_after(asked, grace + _BEYOND_GRACE, slots))
        try:
            while tasks:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if any(slot.refused for slot in slots) and not asked.is_set():
                    stop()
        finally:
            killer.cancel()
    if any(slot.refused for slot in slots):
        return BAD_INPUT
    return int({slot.exit_code for slot in slots} != {0})


async def _kill_after(asked: asyncio.Event, delay: timedelta, slots: Sequence[Slot]) -> None:
    await asked.wait()
    await Wakeup().wait(delay)
    for slot in slots:
        slot.send(signal.SIGKILL)


def _told(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
