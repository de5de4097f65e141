"""Allow-lists of commands, and programs that are hard to end."""

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
    """Return the guardians below this process, and all that descends from them."""
    found: set[int] = set()
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(part.endswith("guardian.py") for part in each.cmdline()):
                found |= {each.pid, *(below.pid for below in each.children(recursive=True))}
    return found
