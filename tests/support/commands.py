"""Allow-lists of commands, and programs that are hard to end."""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from forge_jobs import EnqueueRequest, HandlerRegistry, Program, command_handlers

PYTHON = Program(sys.executable, arguments=[".*"], anywhere=True)
"""Runs any Python program, which no deployment should allow."""

TRUE = shutil.which("true") or "/bin/true"


def python_commands(folder: Path, **options: Any) -> HandlerRegistry:
    """Return handlers that run any Python program as ``py``."""
    given = {"timeout": 60.0, "max_attempts": 1} | options
    programs = {"py": PYTHON, "true": Program(TRUE)} | given.pop("programs", {})
    return command_handlers(programs, folder=folder, **given)


def command(*argv: str, cwd: str = "") -> EnqueueRequest:
    """Return a request to run a command."""
    return EnqueueRequest("cmd_exec", {"argv": list(argv), "cwd": cwd})


def python(code: str, *arguments: str) -> EnqueueRequest:
    """Return a request to run a Python program."""
    return command("py", "-I", "-c", code, *arguments)


def processes_below() -> set[int]:
    """Return the processes that descend from this one, but for those of the stores."""
    found = set()
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if not each.name().startswith(("postgres", "valkey", "redis")):
                found.add(each.pid)
    return found


def open_files() -> set[str]:
    """Return what this process has open, without the descriptor that lists them."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        path = Path("/proc/self/fd", name)
        if path.is_symlink():
            found.add(f"{name}: {os.readlink(path)}")
    return found
