"""The API against thousands of requests made from the document of the API."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_web import serving


@pytest.mark.long
@pytest.mark.processes
def test_no_request_meets_a_defect_or_leaves_the_document(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'jobs.db'}") as (address, _):
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{address}/api/v1/openapi.json",
            "--url",
            f"{address}/api/v1",
            "--header",
            "Authorization: Bearer program",
            "--max-examples",
            "100",
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
            cwd=tmp_path,
            env={**os.environ, "CI": "1"},
        )
    assert ended.returncode == 0, ended.stdout[-4_000:]
