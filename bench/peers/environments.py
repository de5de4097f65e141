"""An environment per set of requirements, below ``.venv-peers``: peers ask for drivers of
different ages, so that one environment for all would hold old releases of some."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.children import ROOT
from bench.side import Side

FOLDER = ROOT / ".venv-peers"
MARK = ".ready"


class NotInstalled(Exception):
    """A peer cannot be installed here. The text says why."""


def requirements_of(side: type[Side]) -> tuple[str, ...]:
    """Return the direct requirements of the side's environment."""
    return (*side.requirements, *(("uvloop==0.23.0",) if side.uvloop else ()))


def name_of(requirements: tuple[str, ...], python: str) -> str:
    """Return the folder of an environment: readable, and different for different contents."""
    text = "\n".join((*requirements, python))
    project = re.split(r"[\[=<>~]", requirements[0])[0]
    return f"{project}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def python_of(side: type[Side]) -> Path:
    """Return the interpreter of the side's environment, made when it is missing.

    :raises NotInstalled: there is no such interpreter, or pip could not install it
    """
    return installed(requirements_of(side), side.python)


def installed(requirements: tuple[str, ...], version: str = "") -> Path:
    """Return the interpreter of an environment with ``requirements``, made when missing.

    Of several processes that miss the same environment, one makes it and the others wait.

    :param version: of Python, as "3.12". "": the running version
    :raises NotInstalled: there is no such interpreter, or pip could not install it
    """
    folder = FOLDER / name_of(requirements, version)
    python = folder / "bin" / "python"
    if not (folder / MARK).exists():
        with _alone(folder):
            if not (folder / MARK).exists():
                _make(folder, requirements, version)
    return python


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of an environment. The system lets go of the lock when the process ends."""
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path, requirements: tuple[str, ...], version: str) -> None:
    print(f"installing {requirements[0]} in {folder.relative_to(ROOT)} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([str(interpreter(version)), "-m", "venv", str(folder)])
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        _run([*pip, *requirements])
    except NotInstalled:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / MARK).touch()


def interpreter(version: str) -> Path:
    """Ours, or one of ``version`` that runs.

    :raises NotInstalled: there is none
    """
    if not version:
        return Path(sys.executable)
    for candidate in _candidates(version):
        tried = subprocess.run([candidate, "--version"], capture_output=True, check=False)
        if tried.returncode == 0:
            return candidate
    raise NotInstalled(f"needs Python {version}, which is not here")


def _candidates(version: str) -> Iterator[Path]:
    found = shutil.which(f"python{version}")
    if found is not None:
        yield Path(found)
    # A launcher of pyenv's on the PATH refuses a version that is not the chosen one.
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{version}.*/bin/python{version}"))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
        raise NotInstalled(" ".join(errors or done.stderr.splitlines())[-500:])
