"""``/metrics`` of a worker."""

import asyncio
import urllib.request
from pathlib import Path

import pytest

from forge_jobs import open_storage
from forge_jobs.cli.health_server import HealthServer
from forge_jobs.cli.metrics import Metrics
from forge_jobs.cli.outboxes import OutboxOpener
from tests.support.factories import enqueue_one
from tests.support.faulty import Faults, faulty
from tests.support.outboxes import write_down
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


async def test_a_worker_tells_of_the_outbox_that_it_relays_and_goes_on_without(
    tmp_path: Path,
) -> None:
    (tmp_path / "here").mkdir()
    metrics = Metrics()
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as there:
        metrics.open(there)
        opener = OutboxOpener(f"sqlite:///{tmp_path}/here/shop.db", "orders", opened := [there])
        metrics.watch(opener.states)
        assert "forge_jobs_outbox_waiting{" not in (await metrics.text())[1]
        await opener()
        await write_down(opened[1], "orders", 3, "refused on purpose")
        _, text = await metrics.text()
        assert 'forge_jobs_outbox_waiting{destination="orders"} 2.0' in text
        assert 'forge_jobs_outbox_set_aside{destination="orders"} 1.0' in text
        assert 'forge_jobs_outbox_oldest_seconds{destination="orders"} ' in text
        await opened[1].aclose()
        status, text = await metrics.text()
        assert (status, "forge_jobs_outbox_waiting{" in text) == (200, False)


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        text: str = answer.read().decode()
        return text
