"""Folders of throw-away servers, and what killed programs have left running in theirs."""

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from forge_jobs.private_folders import PrivateFolder, remove_abandoned

_KIND = "server"
_ROOM = 2 * 1024**3
_KILL_SECONDS = 30.0


class ServerFolder:
    """A private folder for one server, removed by :meth:`remove` or by the next program.

    :param parent: where to make the folder. None: in memory where the system offers at least 2 GiB
        of that, else among the temporary files
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = (parent or _roomy_parent()).resolve()
        remove_abandoned(_KIND, parent, before=_kill_processes)
        self._folder = PrivateFolder(_KIND, parent)
        self.path = self._folder.path

    def kill_processes(self) -> None:
        """SIGKILL whatever runs in the folder. Returns when nothing does any more."""
        _kill_processes(self.path)

    def remove(self) -> None:
        """Kill processes that run in the folder, and remove the folder."""
        self.kill_processes()
        self._folder.remove()


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is ``folder`` or below. None where /proc is not.

    A server's children count too, also those that lead process groups of their own.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def _kill_processes(folder: Path) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while (running := processes_in(folder)) and time.monotonic() < deadline:
        for process_id in running:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        time.sleep(0.002)


def _roomy_parent() -> Path:
    shared_memory = Path("/dev/shm")
    with suppress(OSError), tempfile.TemporaryFile(dir=shared_memory):
        if shutil.disk_usage(shared_memory).free >= _ROOM:
            return shared_memory
    return Path(tempfile.gettempdir())
