"""Two type checkers accept ``right.py``, and refuse each marked line of ``wrong.py``."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forge_jobs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = Path(forge_jobs.__file__).parents[1]
"""The same, except where a bug is planted in a copy of the package."""
FILES = [HERE / "right.py", HERE / "wrong.py"]
MARK = "# wrong"
LINE = re.compile(
    r"^(?:ERROR )?\S*?(right|wrong)\.py:(\d+)(?::[\d-]+)?: (?!note:)(.*)$", re.MULTILINE
)

Complaints = dict[tuple[str, int], str]
"""File and line -> what a checker says about the line."""


def mypy(cache: Path) -> list[str]:
    options = ("--strict", "--config-file", "", "--no-error-summary", "--hide-error-context")
    return [sys.executable, "-m", "mypy", *options, "--cache-dir", str(cache)]


def pyrefly(_: Path) -> list[str]:
    # Without a file of its own the checker looks for one upwards, and would take mypy's settings.
    python = ("--python-interpreter-path", sys.executable)
    options = ("--config", str(HERE / "pyrefly.toml"), "--output-format", "min-text")
    where = ("--search-path", str(PACKAGE), "--search-path", str(ROOT))
    return [sys.executable, "-m", "pyrefly", "check", *options, *where, *python]


@pytest.fixture(scope="module", params=[mypy, pyrefly], ids=["mypy", "pyrefly"])
def said(request: pytest.FixtureRequest) -> Complaints:
    """Return what a checker at its strictest says, from one run because a checker starts slowly."""
    command: Callable[[Path], list[str]] = request.param
    done = subprocess.run(
        [*command(PACKAGE / ".mypy_cache" / "of_a_user"), *FILES],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": f"{PACKAGE}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return {(name, int(line)): text for name, line, text in LINE.findall(done.stdout)}


def marked() -> set[int]:
    lines = (HERE / "wrong.py").read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(MARK)}


@pytest.mark.daily("pyrefly")
def test_right_uses_are_accepted(said: Complaints) -> None:
    assert {line: text for (name, line), text in said.items() if name == "right"} == {}


@pytest.mark.daily("pyrefly")
def test_wrong_uses_are_refused_each(said: Complaints) -> None:
    assert {line for name, line in said if name == "wrong"} == marked()


def test_the_lists_hold_what_they_held() -> None:
    """An empty list would find nothing wrong."""
    assert len(marked()) >= 35
