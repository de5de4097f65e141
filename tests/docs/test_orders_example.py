"""The orders program, unchanged, on every store, with the program's own tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import backends

WITHOUT = ("cacheprovider", "schemathesis", "valkey")
"""Plugins of pytest that are installed here and of no use to the program's tests."""

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


def run(folder: Path, url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FORGE_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=clean | {"FORGE_STORAGE_URL": url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_the_url_is_all_that_changes(backend: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "orders"))
    url = await backends.url_of(backend, tmp_path)

    program = run(folder, url, "orders.py")
    without = [word for name in WITHOUT for word in ("-p", f"no:{name}")]
    tests = run(folder, url, "-m", "pytest", "-q", *without)

    _, _, said = (EXAMPLE / "orders.py").read_text().partition("\n# Prints:\n")
    assert program.stdout.splitlines() == [line.removeprefix("# ") for line in said.splitlines()]
    assert program.returncode == 0, program.stderr
    assert "2 passed" in tests.stdout, tests.stdout
    await backends.forget(backend, tmp_path)
