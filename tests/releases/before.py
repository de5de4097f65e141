"""Programs of the release before: a wheel of a commit, in an environment of its own.

The last release is the commit that raised ``RELEASED`` to its number. One of long ago is the last
commit with its schema. A change of what is in Redis comes with a change of the schema, or has no
number at all: the commit before an older change is without both.
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.environments import FOLDER, MARK
from tests.examples.running import ROOT

RELEASED = 35
"""The schema of the last release. Its migrations are never edited, those after it may be until the
next release raises this number, in a commit of its own.
"""
_THIS = "tests/releases/before.py"
_MIGRATIONS = "forge_jobs/storage/sql/migrations"


def commit_of_last_release() -> str:
    """Return the commit that raised ``RELEASED`` to its number.

    :raises AssertionError: the history does not reach so far
    """
    raised = _run("git", "log", "-1", "--format=%H", "-G", "^RELEASED = ", "--", _THIS)
    assert raised, (
        f"the history of this repository has no commit that sets RELEASED in {_THIS}; "
        "fetch the whole history: git fetch --unshallow"
    )
    return raised.strip()


def commit_before(version: int) -> str:
    """Return the last commit whose schema is older than ``version``.

    :raises AssertionError: the history does not reach so far
    """
    added = _run(
        "git", "log", "--format=%H", "--diff-filter=A", "--", f"{_MIGRATIONS}/{version:04}_*"
    )
    assert added, (
        f"the history of this repository has no commit that adds migration {version}; "
        "fetch the whole history: git fetch --unshallow"
    )
    return _run("git", "rev-parse", f"{added.split()[-1]}^").strip()


def edited_since(commit: str) -> list[str]:
    """Return the migrations of a commit that are not in this tree as they were."""
    changed = _run("git", "diff", "--name-only", "--diff-filter=a", commit, "--", _MIGRATIONS)
    return [path for path in changed.split() if path.endswith(".sql")]


def python_of(commit: str) -> Path:
    """Return the interpreter of an environment with the wheel of a commit, made when missing.

    Of several processes that miss the same environment, one makes it and the others wait.
    """
    folder = FOLDER / f"forge-jobs-{commit[:12]}"
    with _alone(folder):
        if not (folder / MARK).exists():
            _make(folder, commit)
    return folder / "bin" / "python"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path, commit: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        tree, archive = Path(place) / "tree", Path(place) / "tree.tar"
        _run("git", "archive", "--format=tar", f"--output={archive}", commit)
        shutil.unpack_archive(archive, tree, filter="data")
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        _run(*pip, "wheel", "--no-deps", "--wheel-dir", place, tree)
        [wheel] = Path(place).glob("*.whl")
        _run(sys.executable, "-m", "venv", folder)
        _run(folder / "bin" / "python", *pip[1:], "install", wheel)
    (folder / MARK).touch()


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout
