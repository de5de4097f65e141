"""The shop on FastAPI: orders and their receipts, over HTTP."""

from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import make_url

from forge_jobs import open_storage
from tests.examples.running import Program, copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]

SERVER = ("uvicorn", "app:app", "--port", "0")
WORKER = ("forge-jobs", "worker", "jobs:handlers", "--queues", "mail=4", "--until-empty")
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"}


async def shop(backend: str, folder: Path) -> tuple[Program, str]:
    url = await backends.url_of(backend, folder)
    own = make_url(url).set(drivername=DRIVERS[backend], query={})
    own_url = own.render_as_string(hide_password=False)
    return copied("fastapi_shop", folder, FORGE_STORAGE_URL=url, DATABASE_URL=own_url), url


async def placed(client: httpx.AsyncClient) -> tuple[int, str]:
    answer = await client.post("/orders", json={"address": "ada@example.org"})
    assert answer.status_code == 202
    return answer.json()["order"], answer.json()["job"]


@pytest.mark.parametrize("backend", DRIVERS)
async def test_an_order_and_its_receipt_are_one_transaction(backend: str, tmp_path: Path) -> None:
    program, url = await shop(backend, tmp_path)

    async with program.serving(*SERVER) as client:
        refused = await client.post("/orders", json={"address": "bob@example.org", "stock": 0})
        order, job = await placed(client)
        before = await client.get(f"/jobs/{job}")
        worker = program.run(*WORKER)
        after = await client.get(f"/jobs/{job}")
        unknown = await client.get(f"/jobs/{'0' * 26}")
        no_id = await client.get("/jobs/seven")

    async with await open_storage(url) as storage:
        counts = (await storage.jobs.counts(["mail"]))["mail"].by_status
    await backends.forget(backend, tmp_path)
    assert refused.status_code == 409
    assert before.json() == {"status": "pending"}
    assert worker.returncode == 0, worker.stderr
    assert after.json() == {
        "status": "done",
        "result": f"receipt of order {order} sent to ada@example.org",
    }
    assert (unknown.status_code, no_id.status_code) == (404, 422)
    assert sum(counts.values()) == counts["done"] == 1


@pytest.mark.parametrize("backend", DRIVERS)
async def test_the_web_process_runs_the_jobs_and_stops_its_worker(
    backend: str, tmp_path: Path
) -> None:
    program, url = await shop(backend, tmp_path)

    async with program.serving(*SERVER, WORKER_IN_WEB="1") as client:
        order, job = await placed(client)
        answer = await client.get(f"/jobs/{job}", params={"wait": 30})

    async with await open_storage(url) as storage:
        pods = await storage.procs.pods()
    await backends.forget(backend, tmp_path)
    assert answer.json()["result"] == f"receipt of order {order} sent to ada@example.org"
    assert list(pods) == []
