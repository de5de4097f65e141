"""Thousands of jobs behind a progress bar, and their table."""

import csv
import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


TEN_THOUSAND = pytest.param(10_000, "6171 takes 261 steps", marks=pytest.mark.long)


@pytest.mark.parametrize(("count", "longest"), [(1_000, "871 takes 178 steps"), TEN_THOUSAND])
@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_thousands_of_jobs_make_a_table(
    backend: str, count: int, longest: str, tmp_path: Path
) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("notebook", tmp_path, FORGE_STORAGE_URL=url)

    done = program.run(sys.executable, "collatz.py", str(count), "steps.csv")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "100%" in done.stdout
    assert f"{count} numbers, 1 failed; {longest}" in done.stdout
    with (program.folder / "steps.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["number"] for row in rows] == [str(number) for number in range(count)]
    assert rows[27]["steps"] == "111"
    assert [row["number"] for row in rows if row["error"]] == ["0"]
    assert "never gets to 1" in rows[0]["error"]
