"""The reports on Flask, by the blocking client."""

from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]

SERVER = ("flask", "--app", "app", "run", "--port", "0")
WORKER = ("forge-jobs", "worker", "jobs:handlers", "--queues", "reports=2", "--until-empty")


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_a_report_is_ordered_explained_and_fetched(backend: str, tmp_path: Path) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("flask_reports", tmp_path, FORGE_STORAGE_URL=url)

    async with program.serving(*SERVER) as client:
        first = (await client.post("/reports/2026-11-23")).json()
        again = (await client.post("/reports/2026-11-23")).json()
        bad = (await client.post("/reports/someday")).json()
        waiting = await client.get(f"/jobs/{first['job']}")
        worker = program.run(*WORKER)
        report = await client.get(f"/jobs/{first['job']}", params={"wait": 10})
        failed = await client.get(f"/jobs/{bad['job']}")
        unknown = await client.get(f"/jobs/{'0' * 26}")
        no_id = await client.get("/jobs/seven")

    await backends.forget(backend, tmp_path)
    assert again == {"job": first["job"], "new": False}
    assert waiting.status_code == 202
    assert "reports" in waiting.json()["why"]
    assert worker.returncode == 0, worker.stderr
    assert report.json() == {"result": {"day": "2026-11-23", "weekday": "Monday"}}
    assert failed.status_code == 500
    assert "Invalid isoformat string" in failed.json()["error"]
    assert (unknown.status_code, no_id.status_code) == (404, 422)
