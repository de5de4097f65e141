"""What a figure was measured on; no figure is worth anything without it."""

import os
import platform
import sqlite3
from importlib.metadata import version

PACKAGES = ("forge-jobs", "anyio", "SQLAlchemy", "aiosqlite", "msgspec")


def environment(storage_name: str) -> dict[str, str]:
    """Machine, versions and load, as printable facts."""
    facts = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "storage": storage_name,
        "sqlite": sqlite3.sqlite_version,
    }
    return facts | {package: version(package) for package in PACKAGES}
