"""A SQLite file per folder, copied from a file that has the schema."""

import atexit
import shutil
import tempfile
from pathlib import Path

from forge_jobs.storage.opening import open_storage

IN_TESTS = "?synchronous=off"
"""Power is not cut in these tests, so they need not wait for the disk."""

_templates: list[tempfile.TemporaryDirectory[str]] = []


def url_in(folder: Path) -> str:
    """The URL of the folder's file."""
    return f"sqlite:///{folder}/jobs.db"


async def make_in(folder: Path) -> None:
    """Put an empty store into the folder, when there is none."""
    if not _templates:
        folder_of_all = tempfile.TemporaryDirectory()
        atexit.register(folder_of_all.cleanup)
        _templates.append(folder_of_all)
        template = url_in(Path(folder_of_all.name))
        await (await open_storage(f"{template}{IN_TESTS}")).aclose()
    if not (folder / "jobs.db").exists():
        shutil.copy(Path(_templates[0].name) / "jobs.db", folder / "jobs.db")
