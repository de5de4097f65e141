"""The programs pass the type checker at its strictest, because people copy them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.running import ROOT

PROGRAMS = [
    *(ROOT / "examples" / name for name in ("deploy", "dict_store", "fastapi_shop")),
    *(ROOT / "examples" / name for name in ("error_reports", "tracing")),
    *(ROOT / "examples" / name for name in ("flask_reports", "notebook", "orders", "walkthrough")),
    ROOT / "examples" / "coming_from_celery" / "after",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the checker has read of the package and of libraries."""
    return tmp_path_factory.mktemp("checked")


@pytest.mark.long
@pytest.mark.parametrize("folder", PROGRAMS, ids=lambda folder: folder.name)
def test_a_program_is_strictly_typed(folder: Path, cache: Path) -> None:
    options = ("--strict", "--config-file=", "--cache-dir", cache)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
