"""Changes of the Python files below some folders, found by looking."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from forge_jobs.clock import SystemClock
from forge_jobs.runtime.shared.service import Wakeup

_EVERY = 0.3
"""Seconds between two looks."""

_SHARE = 10
"""A look may take a tenth of the time. In a very large tree looks are rarer."""

_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})

_State = tuple[int, int, int]
_elapsed = SystemClock().elapsed


class SourceFiles:
    """The Python files below some folders, as they were at the last look.

    Folders with a dot before the name, virtual environments and installed packages are left out.
    Looks see changes also where the system tells of none, as in folders that are mounted into a
    container.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._seen = self._look()

    async def changed(self) -> list[str]:
        """Wait until files have changed, come or gone, and are at rest. Return their names."""
        changed: set[str] = set()
        while True:
            began = _elapsed()
            seen = await asyncio.to_thread(self._look)
            took = _elapsed() - began
            new = {path for path, _ in self._seen.items() ^ seen.items()}
            self._seen = seen
            if changed and not new:
                return sorted(os.path.basename(path) for path in changed)
            changed |= new
            await Wakeup().wait(timedelta(seconds=max(_EVERY, _SHARE * took)))

    def _look(self) -> Mapping[str, _State]:
        return {
            path: state
            for folder in self._folders
            for path in _python_files(folder)
            if (state := _state_of(path)) is not None
        }


def _python_files(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [each for each in folders if each[0] != "." and each not in _NOT_OURS]
        yield from (os.path.join(place, each) for each in files if each.endswith(".py"))


def _state_of(path: str) -> _State | None:
    """Return what changes with the content of a file. None: the file is gone again."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
