"""OpenTelemetry and Sentry on middleware and hooks, on every store."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import ROOT, copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


_AMID_A_STATEMENT = """
import runpy, sentry_sdk
from sentry_sdk.tracing import Span

sentry_sdk.get_current_scope().span = Span(op="db", name="a statement of another task")
runpy.run_path("charges.py", run_name="__main__")
"""
"""Runs a program in whose scope the statement of another task goes on. Sentry makes a span of each
statement, and tasks that are started together share their scope."""


async def lines_of(example: str, program: str, backend: str, folder: Path) -> list[str]:
    """Run a program, a file or a text, on a store, and return what the program prints."""
    url = await backends.url_of(backend, folder)
    how = (program,) if program.endswith(".py") else ("-c", program)
    done = copied(example, folder, FORGE_STORAGE_URL=url).run(sys.executable, *how)
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
    _are_of_one_trace(await lines_of("error_reports", "charges.py", backend, tmp_path))


async def test_no_event_is_in_the_trace_of_a_statement_of_another_task(tmp_path: Path) -> None:
    _are_of_one_trace(await lines_of("error_reports", _AMID_A_STATEMENT, "sqlite", tmp_path))


def _are_of_one_trace(lines: list[str]) -> None:
    printed = [line for line in lines if line.startswith(("transaction", "warning", "error"))]
    assert len({line.rsplit(" ", 1)[-1] for line in printed}) == 1, "\n".join(lines)
    assert sorted(line.rsplit(" ", 1)[0] for line in printed) == [
        "error ConnectionError no answer for order 7 2",
        "transaction POST /orders",
        "transaction card.charge",
        "transaction card.charge",
        "warning ConnectionError no answer for order 7 1",
    ], "\n".join(lines)


def test_the_integration_of_sentry_has_less_than_40_lines() -> None:
    assert len((ROOT / "examples/error_reports/sentry.py").read_text().splitlines()) < 40
