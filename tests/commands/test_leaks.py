"""Many commands, one after another: no process is left, no descriptor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forge_jobs

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


@pytest.mark.daily("commands-30")
@pytest.mark.parametrize(
    ("work", "count"),
    [
        ("commands", 30),
        ("cancelled", 30),
        ("pools", 100),
        pytest.param("commands", 1_000, marks=pytest.mark.long),
        pytest.param("pools", 1_000, marks=pytest.mark.long),
    ],
)
def test_nothing_is_left(work: str, count: int, tmp_path: Path) -> None:
    # The package that this process has imported, which may be a copy.
    path = os.pathsep.join([str(Path(forge_jobs.__file__).parents[1]), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.leaks", work, str(count)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []
