"""Several worker processes under one command: kept alive, and stopped together."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.cli.failures import BAD_INPUT
from forge_jobs.cli.processes.changes import SourceFiles
from forge_jobs.cli.processes.process import Child
from forge_jobs.cli.processes.reloading import ReloadedSlot, reload_at_changes
from forge_jobs.cli.processes.slot import Slot
from forge_jobs.runtime.pod.signals import on_stop_signals
from forge_jobs.runtime.shared.service import Wakeup

_BEYOND_GRACE = timedelta(seconds=8)
"""Twice the longest time of a stop beyond the grace."""


async def run_processes(
    children: Sequence[Child],
    *,
    grace: timedelta,
    restart: bool,
    files: SourceFiles | None = None,
) -> int:
    """Keep one process per child until a stop signal, or until all are done.

    A process that dies, or that the system does not start, is started again, after a pause that
    doubles from 1 s to 30 s. A process that has reached a limit goes on until a successor runs,
    then finishes the jobs in hand. One process at a time is replaced so.

    The first signal stops all at once, a second one hurries them. A process that still runs a
    little after ``grace`` is killed. A process that ends for bad input ends all: another start
    would not help. A process that has run with that input before is started again: the store may
    have changed, for example.

    :param files: the processes are started anew whenever one of these changes. An end for bad input
        waits for a change then
    :param grace: what the processes themselves give their handlers
    :returns: 0 when the last of each ended with 0. 2 for bad input. Else 1
    """
    longest, turn = grace + _BEYOND_GRACE, asyncio.Lock()
    numbered = [*enumerate(children, start=1)]
    reloaded = [ReloadedSlot(*each, longest=longest) for each in numbered if files is not None]
    slots: Sequence[Slot] = reloaded or [
        Slot(*each, restart=restart, turn=turn, turn_at_most=longest) for each in numbered
    ]
    asked = asyncio.Event()

    def stop() -> None:
        asked.set()
        for slot in slots:
            slot.stop()

    with on_stop_signals(stop, stop):
        tasks = {asyncio.ensure_future(slot.run()) for slot in slots}
        helpers = [asyncio.ensure_future(_kill_after(asked, longest, slots))]
        if files is not None:
            helpers.append(asyncio.ensure_future(reload_at_changes(files, reloaded)))
        try:
            while tasks:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if any(slot.refused for slot in slots) and not asked.is_set():
                    stop()
        finally:
            for helper in helpers:
                helper.cancel()
    if any(slot.refused for slot in slots):
        return BAD_INPUT
    return int({slot.exit_code for slot in slots} != {0})


async def _kill_after(asked: asyncio.Event, delay: timedelta, slots: Sequence[Slot]) -> None:
    await asked.wait()
    await Wakeup().wait(delay)
    for slot in slots:
        slot.kill()
