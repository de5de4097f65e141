"""``/metrics`` of a worker."""

import asyncio
import urllib.request
from pathlib import Path

import pytest

from forge_jobs import open_storage
from forge_jobs.cli.health_server import HealthServer
from forge_jobs.cli.metrics import Metrics
from tests.support.factories import enqueue_one
from tests.support.faulty import Faults, faulty
from tests.support.ports import free_ports

pytestmark = pytest.mark.anyio


async def test_a_worker_answers_metrics(tmp_path: Path) -> None:
    metrics, faults = Metrics(), Faults()
    with free_ports() as port:
        async with (
            await open_storage(f"sqlite:///{tmp_path}/jobs.db") as storage,
            HealthServer(port, {}, {"/metrics": metrics.text}),
        ):
            await enqueue_one(storage, queue="mail")
            assert (await metrics.text())[0] == 503
            metrics.open(faulty(storage, faults))
            text = await asyncio.to_thread(_get, f"http://localhost:{port}/metrics")
            assert 'forge_jobs_queue_depth{queue="mail",state="due"} 1.0' in text
            faults.down = True
            assert await metrics.text() == (503, "the store does not answer\n")


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        text: str = answer.read().decode()
        return text
