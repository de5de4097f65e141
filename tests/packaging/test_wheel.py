"""The uploaded files: the wheel and the source, and the first worker of README from the wheel."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from bench.peers.environments import installed
from forge_jobs.testing.conformance.suite import parts as suite_parts
from tests.docs.test_readme import named
from tests.examples.running import ROOT
from tests.examples.test_dict_store import PARTS
from tests.packaging.pythons import pythons

TOOLS = ("build==1.6.1", "twine==7.0.0")


def run(folder: Path, *command: str | Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in an environment that knows nothing of this tree."""
    ours = ("FORGE_", "PYTHON", "VIRTUAL_ENV")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return subprocess.run(
        command,
        cwd=folder,
        env=clean | {"HOME": str(folder)} | environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built from a copy of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    source = Path(
        shutil.copytree(
            ROOT,
            tmp_path_factory.mktemp("source") / "tree",
            ignore=shutil.ignore_patterns(".*", "__pycache__", "bench-results"),
        )
    )
    built = run(source, installed(TOOLS), "-m", "build", "--outdir", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.long
def test_what_is_uploaded_passes_the_check(distributions: Path) -> None:
    files = sorted(distributions.iterdir())

    checked = run(distributions, installed(TOOLS), "-m", "twine", "check", "--strict", *files)

    assert sorted(file.suffix for file in files) == [".gz", ".whl"]
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2


def programs_of_the_wheel(python: Path, distributions: Path, folder: Path, *more: str) -> Path:
    """Install the wheel, and more, into an empty environment. Return the folder of the programs."""
    [wheel] = distributions.glob("*.whl")
    made = run(folder, python, "-m", "venv", "empty")
    assert made.returncode == 0, made.stderr
    programs = folder / "empty" / "bin"
    got = run(folder, programs / "python", "-m", "pip", "install", "--quiet", wheel, *more)
    assert got.returncode == 0, got.stderr
    return programs


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("python", pythons(), ids=str)
def test_the_wheel_runs_the_first_worker_of_readme(
    python: Path, distributions: Path, tmp_path: Path
) -> None:
    shop = Path(shutil.copytree(ROOT / "examples" / "walkthrough", tmp_path / "shop"))
    programs = programs_of_the_wheel(python, distributions, tmp_path)

    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = run(shop, "bash", "-euo", "pipefail", "-c", named("run")["worker"], PATH=path)
    where = run(shop, programs / "python", "-c", "import forge_jobs; print(forge_jobs.__file__)")

    assert done.returncode == 0, done.stderr
    assert "report.daily" in done.stdout
    assert where.stdout.startswith(str(tmp_path / "empty"))


@pytest.mark.long
@pytest.mark.processes
def test_the_conformance_suite_runs_from_the_wheel(distributions: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(ROOT / "examples" / "dict_store", tmp_path / "mine"))
    # Another project, with settings and tests that must not count.
    (mine / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (mine / "tests").mkdir()
    (mine / "tests" / "__init__.py").write_text("raise ImportError('of another project')\n")
    own = Path(sys.executable)
    programs = programs_of_the_wheel(own, distributions, tmp_path, "pytest")
    suite = (programs / "python", "-m", "forge_jobs.testing.conformance")
    parts = [word for part in PARTS for word in ("--part", part)]

    listed = run(mine, *suite, "--list")
    done = run(mine, *suite, "dict_store:open_store", *parts, "--", "-q")
    collected = run(mine, *suite, "dict_store:open_store", "--", "-q", "--collect-only")

    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(suite_parts())
    assert done.returncode == 0, done.stdout + done.stderr
    # hypothesis is missing, and the parts without the model go on.
    assert "test_model.py" in collected.stdout.partition("short test summary")[2]
    assert "tests/conformance/test_wake.py" in collected.stdout


def test_the_version_is_in_one_place() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    written = [
        str(path.relative_to(ROOT))
        for folder in ("forge_jobs", "examples")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".lua", ".yaml") and f'"{declared}"' in path.read_text()
    ]

    assert version("forge-jobs") == declared
    assert written == []
