"""The API against thousands of requests made from the document of the API."""

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.cli.test_web import serving
from tests.support.backends import pass_on, url_of

_FEW, _MANY = 3, 100
"""Drawn requests of one operation, beside those that cover each constraint of the document."""

_CASES = re.compile(r"(\d+) generated")


def _run(backend: str, folder: Path, examples: int) -> int:
    """Return the number of requests, none of which met a defect or left the document."""
    url = anyio.run(url_of, backend, folder)
    with serving(url) as (address, _):
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{address}/api/v1/openapi.json",
            "--url",
            f"{address}/api/v1",
            "--header",
            "Authorization: Bearer program",
            "--max-examples",
            str(examples),
            # The same requests in each run. Other seeds are for people: schemathesis run --seed.
            "--seed",
            "1",
            "--phases",
            "coverage,fuzzing",
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,"
            "response_schema_conformance",
        ]
        # Schemathesis keeps its findings in the folder of the process.
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, "CI": "1"},
        )
    anyio.run(pass_on, backend, folder)
    assert ended.returncode == 0, ended.stdout[-4_000:]
    cases = _CASES.search(ended.stdout)
    assert cases, ended.stdout[-1_000:]
    return int(cases[1])


@pytest.mark.processes
@pytest.mark.parametrize(
    "backend", ["postgres", "redis", pytest.param("redis-cluster", marks=pytest.mark.long)]
)
def test_no_request_meets_a_defect_or_leaves_the_document(backend: str, tmp_path: Path) -> None:
    assert _run(backend, tmp_path, _FEW) > 100


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(1_800)  # ten minutes are not enough beside two other suites
def test_5000_requests_meet_no_defect(tmp_path: Path) -> None:
    # The requests are the same for each store, and what differs between stores the few show.
    assert _run("sqlite", tmp_path, _MANY) >= 5_000
