"""Runs commands in a process of its own, and says what is left: ``python -m tests.support.leaks``.

In a process with other tests servers start and stop meanwhile.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import psutil

from forge_jobs import WarmPool
from forge_jobs.testing import fake_context
from tests.support import speaker
from tests.support.commands import python_commands
from tests.support.waiting import wait_until

SPEAKER = [sys.executable, "-I", speaker.__file__]
SLEEPING = ["py", "-c", "import time; time.sleep(600)"]


class Leaks:
    """Open files of this process, and the processes below."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> set[str]:
        found = {str(each.pid) for each in psutil.Process().children(recursive=True)}
        for name in os.listdir("/proc/self/fd"):
            path = Path("/proc/self/fd", name)
            if path.is_symlink():
                found.add(f"{name}: {os.readlink(path)}")
        return found

    def left(self) -> list[str]:
        """Return what was not there at the beginning."""
        return sorted(self._now() - self._before)


async def _commands(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cmd_exec = python_commands(Path(folder)).get("cmd_exec")
        assert cmd_exec is not None
        for _ in range(count):
            result = await cmd_exec.function(fake_context(), ["true"])
            assert result.exit_code == 0


async def _cancelled(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cmd_exec = python_commands(Path(folder)).get("cmd_exec")
        assert cmd_exec is not None
        for turns in range(count):
            running = asyncio.ensure_future(cmd_exec.function(fake_context(), SLEEPING))
            for _ in range(2 * turns):
                await asyncio.wait([running], timeout=0.001)
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()


async def _pools(count: int) -> None:
    async with WarmPool(SPEAKER, max_runs=10) as pool:
        for turn in range(count):
            call = pool.call(fake_context(), {"value": turn})
            if turn % 7:
                assert (await call)[2] == turn
                continue
            running = asyncio.ensure_future(call)
            await asyncio.wait([running], timeout=0.01 * (turn % 5))
            running.cancel()
            await asyncio.wait([running])


async def _main(name: str, count: int) -> list[str]:
    work = {"commands": _commands, "cancelled": _cancelled, "pools": _pools}[name]
    await work(1)
    leaks = Leaks()
    await work(count)
    try:
        await wait_until(lambda: not leaks.left(), description="all is closed", timeout=10)
    except AssertionError:
        return leaks.left()
    return []


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(sys.argv[1], int(sys.argv[2])))))
