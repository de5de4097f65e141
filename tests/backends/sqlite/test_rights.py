"""The doctor of a user who may not write the file says so."""

import ctypes
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from forge_jobs.storage.opening import open_storage
from tests.support.factories import enqueue_one

pytestmark = pytest.mark.anyio

_DROP_FROM_BOUNDING_SET, _WRITE_ANYTHING = 24, 1
_libc = ctypes.CDLL(None)


def _as_others() -> None:
    """Root may write any file, with a capability that the next program does without."""
    _libc.prctl(_DROP_FROM_BOUNDING_SET, _WRITE_ANYTHING, 0, 0, 0)


def doctor_of(path: Path) -> tuple[int, dict[str, str]]:
    """The exit code, and the finding about rights."""
    done = subprocess.run(
        [sys.executable, "-m", "forge_jobs", "doctor", "--json", "--storage", f"sqlite:///{path}"],
        capture_output=True,
        check=False,
        preexec_fn=_as_others,
        timeout=60,
    )
    [found] = [
        each for each in msgspec.json.decode(done.stdout)["findings"] if each["check"] == "rights"
    ]
    return done.returncode, found


def let_write(folder: Path) -> None:
    """SQLite gives the files beside the first the rights of the first."""
    for each in folder.iterdir():
        each.chmod(0o644)


async def test_the_doctor_of_a_user_who_may_not_write_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with await open_storage(f"sqlite:///{path}") as storage:
        await enqueue_one(storage)
    code, found = doctor_of(path)
    assert (code, found["state"]) == (0, "ok")

    path.chmod(0o444)

    code, found = doctor_of(path)
    assert (code, found["state"]) == (1, "fail")
    assert found["text"].startswith("this user may not write jobs.db")
    let_write(tmp_path)
    assert doctor_of(path)[1]["state"] == "ok"
