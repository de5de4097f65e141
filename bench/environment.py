"""The machine and the software of a figure, without which no figure is worth anything."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from bench.stores import Store
from forge_jobs import open_storage

PACKAGES = ("forge-jobs", "anyio", "SQLAlchemy", "aiosqlite", "asyncpg", "redis", "uvloop")
_ASK = (
    "from importlib.metadata import distributions as d;"
    "print('\\n'.join(f\"{x.metadata['Name']} {x.version}\" for x in d()))"
)


def machine(folder: Path) -> dict[str, str]:
    """Hardware, system, load now, and the disk that the stores are on."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1024**3:.1f} GiB",
        "disk": _file_system(folder),
        "load": load(),
        "python": platform.python_version(),
    } | {package: version(package) for package in PACKAGES}


def load() -> str:
    """Processes that wanted to run, over 1, 5 and 15 minutes."""
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


async def server(store: Store) -> dict[str, str]:
    """Return the store's product, the durability of a commit, and the settings."""
    async with await open_storage(await store.fresh()) as storage:
        facts = {"server": storage.server, "durability": storage.durability}
    return facts | dict(await store.settings())


def packages(python: Path, names: Sequence[str]) -> Mapping[str, str]:
    """The versions of ``names`` that an environment holds."""
    asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True)
    found = dict(line.rsplit(" ", 1) for line in asked.stdout.splitlines())
    lowered = {name.lower(): value for name, value in found.items()}
    return {name: lowered[name.lower()] for name in names if name.lower() in lowered}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor() or "unknown"


def _file_system(folder: Path) -> str:
    """Return the mount that holds ``folder``: the mount with the longest path above it."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if folder.resolve().is_relative_to(point) and len(point) > len(best[0]):
            best = (point, kind)
    return best[1]
