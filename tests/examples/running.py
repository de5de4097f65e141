"""Programs of examples/ in processes of their own, in a copy of their folder."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
from msgspec import Struct

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Program(Struct, frozen=True):
    """A copy of an example, and the environment of the commands."""

    folder: Path
    environ: dict[str, str]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to the end."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    @property
    def log(self) -> Path:
        """Return the output of the command that :meth:`started` has started."""
        return self.folder / "log"

    @contextmanager
    def started(self, *command: str, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a command that runs until it is stopped, and kill a command that was not."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environ | environ, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @asynccontextmanager
    async def serving(self, *command: str, **environ: str) -> AsyncIterator[httpx.AsyncClient]:
        """Run a web server that says where it listens. At the end the server has to stop at
        SIGTERM.
        """
        with self.started(*command, **environ) as server:
            found = await wait_until(
                lambda: server.poll() is not None or _address(self.log),
                description="the server listens",
            )
            assert isinstance(found, str), self.log.read_text()
            async with httpx.AsyncClient(base_url=found, timeout=100, trust_env=False) as client:
                yield client
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=100)


def _address(log: Path) -> str | None:
    found = re.search(r"unning on (http://[\d.:]+)", log.read_text())
    return found and found.group(1)


def copied(example: str, folder: Path, **environ: str) -> Program:
    """Copy an example below ``folder``. Variables of forge_jobs are left out of the environment."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FORGE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}"
    clean |= {"PATH": path, "HOME": str(folder), "NO_COLOR": "1"}
    copy = Path(shutil.copytree(ROOT / "examples" / example, folder / example))
    return Program(copy, clean | environ)
