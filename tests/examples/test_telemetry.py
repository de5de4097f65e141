"""OpenTelemetry and Sentry on middleware and hooks, on every store."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import ROOT, copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


async def lines_of(example: str, program: str, backend: str, folder: Path) -> list[str]:
    """Run a program on a store, and return what the program prints."""
    url = await backends.url_of(backend, folder)
    done = copied(example, folder, FORGE_STORAGE_URL=url).run(sys.executable, program)
    await backends.forget(backend, folder)
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_consumer_spans_are_linked_to_producer_spans(backend: str, tmp_path: Path) -> None:
    assert await lines_of("tracing", "orders.py", backend, tmp_path) == [
        "INTERNAL 'POST /orders': UNSET",
        "PRODUCER 'enqueue order.pack' in 'POST /orders': UNSET",
        "CONSUMER 'process order.pack' linked to 'enqueue order.pack': ERROR",
        "INTERNAL 'look into the shelf' in 'process order.pack': ERROR",
        "CONSUMER 'process order.pack' linked to 'enqueue order.pack': UNSET",
        "INTERNAL 'look into the shelf' in 'process order.pack': UNSET",
        "PRODUCER 'enqueue order.send' in 'process order.pack': UNSET",
        "CONSUMER 'process order.send' linked to 'enqueue order.send': UNSET snoozed",
        "CONSUMER 'process order.send' linked to 'enqueue order.send': UNSET",
        "INTERNAL 'call the carrier' in 'process order.send': UNSET",
    ]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_failed_attempts_are_events_in_the_trace_of_the_enqueue(
    backend: str, tmp_path: Path
) -> None:
    lines = await lines_of("error_reports", "charges.py", backend, tmp_path)
    printed = [line for line in lines if line.startswith(("transaction", "warning", "error"))]
    _, trace = printed[0].rsplit(" ", 1)
    assert sorted(printed) == sorted(
        [
            f"transaction POST /orders {trace}",
            f"transaction card.charge {trace}",
            f"warning ConnectionError no answer for order 7 1 {trace}",
            f"transaction card.charge {trace}",
            f"error ConnectionError no answer for order 7 2 {trace}",
        ]
    )


def test_the_integration_of_sentry_has_less_than_40_lines() -> None:
    assert len((ROOT / "examples/error_reports/sentry.py").read_text().splitlines()) < 40
