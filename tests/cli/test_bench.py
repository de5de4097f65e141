"""``forge-jobs bench``: figures of a store, and nothing left behind."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support import backends
from tests.support.factories import register
from tests.support.terminals import Program, in_pipe

QUICK = ("--seconds", "1", "--workers", "4")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CommandLine]:
    async def make() -> str:
        return await backends.url_of(request.param, tmp_path)

    command_line = CommandLine(anyio.run(make))
    command_line("migrate", "up")
    yield command_line
    anyio.run(backends.forget, request.param, tmp_path)


def left_behind(forge: CommandLine) -> tuple[list[str], list[str]]:
    """Return the queues that are known, and the ids of all jobs."""
    queues = forge.json("queues", "list")["queues"]
    return [each["name"] for each in queues], [
        each["id"] for each in forge.json("jobs", "list")["jobs"]
    ]


def test_each_part_has_figures_and_nothing_is_left_behind(forge: CommandLine) -> None:
    mine = forge("enqueue", "shop.mail", "--queue", "shop").stdout.strip()

    found = forge.json("bench", *QUICK)

    assert (found["queue"], found["workers"], found["seconds"]) == ("forge-bench", 4, 1.0)
    for part in ("enqueue", "enqueue_many", "drain"):
        assert found[part]["count"] >= 1
        assert found[part]["per_second"] > 0
    for part in ("enqueue", "enqueue_many", "claim", "pickup"):
        assert 0 < found[part]["p50_ms"] <= found[part]["p99_ms"]
    assert (
        found["drain"]["count"] <= found["enqueue"]["count"] + 100 * found["enqueue_many"]["count"]
    )
    assert left_behind(forge) == (["shop"], [mine])


@pytest.mark.any_store
def test_people_read_what_each_figure_means(forge: CommandLine) -> None:
    said = forge("bench", *QUICK, "--queue", "forge-bench-2").stdout
    for words in ("one job a call", "100 jobs a call", "4 at once", "99 of 100 were not slower"):
        assert words in said
    assert left_behind(forge) == ([], [])


def test_a_queue_in_use_is_left_alone(forge: CommandLine) -> None:
    job_id = forge("enqueue", "shop.mail", "--queue", "forge-bench").stdout.strip()

    told = forge.refuse("bench", *QUICK, code=1)

    assert "forge-bench is in use (1 jobs, 0 pods)" in told
    assert "forge-jobs queues delete forge-bench --with-jobs" in told
    assert left_behind(forge) == (["forge-bench"], [job_id])
    forge("queues", "delete", "forge-bench", "--with-jobs")
    assert left_behind(forge) == ([], [])


@pytest.mark.any_store
def test_a_queue_that_a_pod_serves_is_left_alone(forge: CommandLine) -> None:
    async def join() -> None:
        async with await open_storage(forge.url) as storage:
            await register(storage, queues=("forge-bench",))

    anyio.run(join)
    assert "(0 jobs, 1 pods)" in forge.refuse("bench", *QUICK, code=1)


@pytest.mark.any_store
def test_schedules_of_others_are_not_fired(forge: CommandLine) -> None:
    forge("cron", "add", "nightly", "shop.report", "@every 1h")
    told = forge.refuse("bench", *QUICK, code=1)
    assert "would lead and fire 1 schedules; start a worker, or pause the schedules" in told
    forge("cron", "pause", "nightly")
    assert forge.json("bench", *QUICK)["drain"]["count"] >= 1


@pytest.mark.any_store
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--queue", "orders"), "give a name that begins forge-bench"),
        (("--seconds", "0"), "0"),
        (("--workers", "0"), "0"),
    ],
)
def test_what_is_no_bench_is_refused(
    forge: CommandLine, options: tuple[str, ...], text: str
) -> None:
    assert text in forge.refuse("bench", *options)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_the_bench_and_removes_the_jobs(
    forge: CommandLine, number: signal.Signals
) -> None:
    with _running(forge) as bench:
        anyio.run(bench.shows, "running them")
        bench.send(number)
        assert anyio.run(bench.ends) == 128 + number
    assert left_behind(forge) == ([], [])


@contextmanager
def _running(forge: CommandLine, **options: Any) -> Iterator[Program]:
    with in_pipe("bench", "--seconds", "60", FORGE_STORAGE_URL=forge.url, **options) as bench:
        yield bench
