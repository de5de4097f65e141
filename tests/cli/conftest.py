"""The command line, called in this process, on a new store."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from click.testing import CliRunner, Result

from forge_jobs.cli.main import cli
from tests.support import files
from tests.support.waiting import wait_until


def wait(predicate: Callable[[], object], *, description: str, timeout: float) -> None:
    """``wait_until`` for tests that are not async, because commands start a loop of their own."""
    anyio.run(partial(wait_until, predicate, description=description, timeout=timeout))


class CommandLine:
    """Calls ``forge-jobs`` as a user would, with the store already chosen."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._runner = CliRunner()

    def __call__(self, *args: str, code: int = 0, stdin: str | bytes | None = None) -> Result:
        """Run one command, which must end with ``code``."""
        result = self.run(*args, stdin=stdin)
        assert result.exit_code == code, f"{args}: {result.output}"
        return result

    def run(self, *args: str, stdin: str | bytes | None = None) -> Result:
        """Run one command, whatever the exit code."""
        return self._runner.invoke(cli, args, input=stdin, env={"FORGE_STORAGE_URL": self.url})

    def json(self, *args: str, code: int = 0) -> Any:
        """Run one command with ``--json``. The output must be one document on one line."""
        result = self(*args, "--json", code=code)
        assert result.stdout.endswith("\n")
        assert result.stdout.count("\n") == 1
        return msgspec.json.decode(result.stdout)

    def refuse(self, *args: str, code: int = 2, stdin: str | bytes | None = None) -> str:
        """Run one command that must be refused in one line, and return the line."""
        result = self(*args, code=code, stdin=stdin)
        assert result.stdout == ""
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr.removeprefix("Error: ").rstrip("\n")


@pytest.fixture(autouse=True)
def no_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own ``FORGE_*`` reaches a test."""
    for name in list(os.environ):
        if name.startswith("FORGE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def forge(tmp_path: Path) -> CommandLine:
    """The command line on an empty store."""
    anyio.run(files.make_in, tmp_path)
    return CommandLine(files.url_in(tmp_path))


@pytest.fixture
def enqueue(forge: CommandLine) -> Callable[..., str]:
    """Return a function that enqueues a job and returns the id."""

    def run(*args: str) -> str:
        return forge("enqueue", *args).stdout.strip()

    return run
