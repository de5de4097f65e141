"""Starts the processes of a bench and talks to them in lines."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from bench.side import Work

ROOT = Path(__file__).parents[1]
STEP_SECONDS = 900.0
STOP_SECONDS = 40.0
TAIL = 2_000


class ChildFailed(Exception):
    """A process of a side ended, or took too long. Ends with the last output."""


class Child:
    """A process. Entering waits until it is ready. Leaving lets it stop, then kills it.

    :param python: the interpreter of the side's environment
    """

    def __init__(self, work: Work, python: Path | None = None) -> None:
        self._work = work
        self._python = python or Path(sys.executable)
        self._errors = bytearray()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            str(self._python),
            "-m",
            "bench.child",
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=16 * 1024**2,
        )
        self._reader = asyncio.create_task(self._read_errors())
        assert self._process.stdin is not None
        # Not as an argument, which every user of the machine may read: URLs hold passwords.
        self._process.stdin.write(json.dumps(asdict(self._work)).encode() + b"\n")
        try:
            await self.next_report("ready")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._end(0.0 if error[0] else STOP_SECONDS)

    def go(self) -> None:
        """Let the process take the next step. :meth:`next_report` reports the end of one."""
        assert self._process.stdin is not None
        # Errors of uvloop and asyncio for a pipe without a reader.
        with suppress(RuntimeError, OSError):
            self._process.stdin.write(b"go\n")

    async def next_report(self, what: str, limit: float = STEP_SECONDS) -> dict[str, Any]:
        """Return the next report, which must be ``what``. Kill the process after ``limit`` seconds.

        :raises ChildFailed: the process ended, or was silent for too long
        """
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), limit)
        except TimeoutError:
            self._process.kill()
            raise ChildFailed(f"{self._said()}: no {what!r} in {limit:g} s") from None
        if not line:
            await self._process.wait()
            await self._reader
            raise ChildFailed(f"{self._said()}: ended before {what!r}")
        report: dict[str, Any] = json.loads(line)
        assert report["what"] == what, report
        return report

    def _said(self) -> str:
        tail = self._errors.decode(errors="replace").strip()[-TAIL:]
        return f"{self._work.side} as {self._work.role}" + (f"\n{tail}\n" if tail else "")

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65_536):
            self._errors += chunk
            del self._errors[: -2 * TAIL]

    async def _end(self, patience: float = 0.0) -> None:
        assert self._process.stdin is not None
        if self._process.returncode is None and patience:
            self.go()
            try:
                await asyncio.wait_for(self._process.wait(), patience)
            except TimeoutError:
                print(f"{self._said()}: did not stop, killed", file=sys.stderr)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process.stdin.close()
        await self._reader


@asynccontextmanager
async def started(works: Sequence[Work], python: Path | None) -> AsyncIterator[list[Child]]:
    """All of them, ready at once."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Child(work, python)) for work in works]
