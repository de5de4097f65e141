"""What a figure was measured on; no figure is worth anything without it."""

import os
import platform
from importlib.metadata import version

from forge_jobs import open_storage

PACKAGES = ("forge-jobs", "anyio", "SQLAlchemy", "aiosqlite", "asyncpg", "redis", "msgspec")


async def environment(url: str) -> dict[str, str]:
    """Machine, versions, load and store, as printable facts."""
    async with await open_storage(url) as storage:
        server, durability = storage.server, storage.durability
    facts = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "store": server,
        "durability": durability,
    }
    return facts | {package: version(package) for package in PACKAGES}
