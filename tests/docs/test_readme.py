"""README contains only code and commands that were run: its files are the examples."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.pages import blocks_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
EXAMPLES = sorted(
    path for name in ("orders", "walkthrough") for path in (ROOT / "examples" / name).glob("*.py")
)
SETUP = "make demo    # two workers on a SQLite file; one is killed half way, nothing is lost\n"

pytestmark = pytest.mark.processes


def named(attribute: str) -> dict[str, str]:
    """Blocks that carry ``attribute="value"``: value -> text."""
    found = {}
    for block in blocks_of(README):
        match = re.fullmatch(rf'{attribute}="(.+)"', block.info)
        if match:
            found[match.group(1)] = block.text
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A copy of the walk-through's files, where the commands may leave a database."""
    return Path(shutil.copytree(ROOT / "examples" / "walkthrough", tmp_path / "shop"))


def environment(folder: Path) -> dict[str, str]:
    """The commands of this environment on PATH, and nothing of forge_jobs set."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FORGE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}"
    return clean | {"PATH": path, "HOME": str(folder), "NO_COLOR": "1"}


def test_every_snippet_is_a_file_or_is_run() -> None:
    unmarked = [block for block in blocks_of(README) if not block.info]

    assert [block.text.splitlines(keepends=True)[0] for block in unmarked] == [SETUP]
    assert set(named("run")) == {"worker", "cron", "deploy", "look"}


@pytest.mark.parametrize("path", sorted(named("title")))
def test_a_shown_file_is_the_example(path: str) -> None:
    assert named("title")[path] == (ROOT / path).read_text()


@pytest.mark.daily("embedded")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(path.parent, tmp_path / "example"))

    done = subprocess.run(
        [sys.executable, folder / path.name],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    _, _, said = path.read_text().partition("\n# Prints:\n")
    expected = "".join(line.removeprefix("# ") for line in said.splitlines(keepends=True))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected


@pytest.mark.long
def test_the_commands_shown_succeed_one_after_the_other(shop: Path) -> None:
    commands = [named("run")[name] for name in ("worker", "cron", "look")]

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=shop,
        env=environment(shop),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "report.daily" in done.stdout
    assert "nightly" in done.stdout


@contextmanager
def started(command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command until it ends or the block does."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec env {command}"],
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.anyio
async def test_the_deployment_shown_runs_until_it_is_told_to_stop(shop: Path) -> None:
    def pods() -> list[object]:
        done = subprocess.run(
            ["forge-jobs", "pods", "--json", "--storage", "sqlite:///shop.db"],
            cwd=shop,
            env=environment(shop),
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(done.stdout) if done.returncode == 0 else []
        return list(found["pods"] if isinstance(found, dict) else found)

    with started(named("run")["deploy"], shop) as worker:
        await wait_until(pods, description="the worker is there", timeout=100)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=100) == 0
    assert pods() == []
