"""The demo, played whole with a small folder, and the counts at its end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from rich.console import Console

from forge_jobs.demo.handlers import FILES, measure
from forge_jobs.demo.ledger import HandedOut, Seen, balance
from forge_jobs.demo.summary import percentile
from forge_jobs.demo.view import LiveView, Observation, PlainView, sparkline
from tests.cli.conftest import wait

DEMO = ("--json", "--pace", "0.1")


def seen(job_id: str, *, outcome: str = "done", lines: int = 0, words: int = 0) -> Seen:
    return msgspec.convert(
        {
            "job_id": job_id,
            "kind": "demo.count_file",
            "attempt": 1,
            "process_id": 1,
            "at_us": 1,
            "outcome": outcome,
            "lines": lines,
            "words": words,
        },
        Seen,
    )


def handed_out(*job_ids: str) -> list[HandedOut]:
    return [HandedOut(job_id, "demo.count_file", "/f") for job_id in job_ids]


def test_a_job_without_a_finished_run_is_lost() -> None:
    books = balance(handed_out("a", "b", "c"), [seen("a"), seen("b", outcome="missing")])

    assert (books.handed_out, books.finished, books.lost) == (3, 1, 2)


def test_a_job_that_gave_up_is_not_lost() -> None:
    runs = [seen("a", outcome="missing"), seen("a", outcome="gave_up")]

    assert balance(handed_out("a"), runs).lost == 0


def test_a_second_finished_run_is_a_duplicate_and_counts_its_file_once() -> None:
    runs = [seen("a", lines=3, words=5), seen("a", lines=3, words=5)]

    books = balance(handed_out("a"), runs)

    assert (books.duplicates, books.files, books.lines, books.words) == (1, 1, 3, 5)


def test_runs_of_jobs_that_nobody_handed_out_do_not_cover_for_lost_ones() -> None:
    assert balance(handed_out("a"), [seen("b")]).lost == 1


@pytest.mark.parametrize(
    ("content", "lines", "words"),
    [
        (b"", 0, 0),
        (b"one two\nthree", 1, 3),
        (b"x" * (1 << 20) + b"y z\n", 1, 2),
        (b"x" * ((1 << 20) - 1) + b" y", 0, 2),
    ],
)
def test_lines_and_words_are_counted_across_chunks(
    tmp_path: Path, content: bytes, lines: int, words: int
) -> None:
    file = tmp_path / "f"
    file.write_bytes(content)

    facts = measure(file)

    assert (facts.lines, facts.words) == (lines, words)


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.95) == 95


def _observation(seconds: float, *, done: int, pending: int) -> Observation:
    counts = {FILES: {"done": done, "pending": pending}}
    return Observation(seconds=seconds, counts=counts, pods=(), failures=0, revived=0)


def test_the_pace_is_a_line_as_high_as_the_fastest_moment() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 50, 100, 25]) == "▁▅█▃"


def test_lines_show_how_much_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    view.show(_observation(0.0, done=0, pending=0))
    view.show(_observation(1.5, done=30, pending=90))
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[2] == "0%"
    assert second.split()[2:4] == ["25%", "20/s"]


def test_the_live_view_has_a_bar_and_the_pace_as_a_line() -> None:
    view, console = LiveView(), Console(width=120, color_system=None)
    with console.capture() as captured:
        for second in range(5):
            observation = _observation(second, done=30 * second, pending=120 - 30 * second)
            console.print(view._draw(observation, view._pace.add(observation)))
    text = captured.get()
    assert "90 of 120 files" in text
    assert "▁████  files/s" in text
    assert "━" * 60 in text.rpartition("120 of 120 files")[0]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """A folder for the demo's temporary files, so that files left behind are seen."""
    place = tmp_path / "tmp"
    place.mkdir()
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder on which the demo works."""
    place = tmp_path / "files"
    place.mkdir()
    for number in range(120):
        (place / f"{number:03}.txt").write_text("two words\n" * number)
    return place


@pytest.fixture
def options() -> list[str]:
    """The arguments of the demo. A test may add more."""
    return []


@pytest.fixture
def demo(temporary: Path, folder: Path, options: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the demo as a process, which is gone after the test."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "forge_jobs", "demo", str(folder), *DEMO, *options],
        env=environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def workers_of(temporary: Path) -> list[int]:
    """Processes that have to do with the demo's temporary folder."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        if environ.get("TMPDIR") == str(temporary) or str(temporary) in environ.get(
            "FORGE_STORAGE_URL", ""
        ):
            found.append(process.pid)
    return found


@pytest.mark.processes
@pytest.mark.parametrize("options", [[], ["--postgres"], ["--redis"]], ids=" ".join)
def test_the_demo_loses_nothing_though_a_worker_is_killed(
    demo: "subprocess.Popen[bytes]", temporary: Path
) -> None:
    output, errors = demo.communicate(timeout=100)

    assert demo.returncode == 0, errors
    assert output.count(b"\n") == 1
    summary = msgspec.json.decode(output)
    assert summary["lost"] == 0
    assert summary["dead"] == 1
    assert summary["revived"] >= 1
    assert summary["duplicates"] <= summary["revived"]
    assert summary["done"] == summary["jobs"] - 1
    assert summary["files"] == 122
    assert summary["lines"] == sum(range(120)) + 2
    assert summary["retries"] >= 5
    assert summary["ticks"] >= 1
    assert summary["pickup_ms"]["p50"] > 0
    assert list(temporary.iterdir()) == []
    assert workers_of(temporary) == []


@pytest.mark.daily
@pytest.mark.processes
@pytest.mark.parametrize(
    ("signum", "code", "options"),
    [
        (signal.SIGINT, 1, []),
        pytest.param(signal.SIGTERM, 1, [], marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, -9, [], marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 1, ["--postgres"], id="postgres"),
        pytest.param(signal.SIGTERM, 1, ["--redis"], id="redis"),
    ],
)
def test_a_demo_that_is_stopped_leaves_nothing_behind(
    demo: "subprocess.Popen[bytes]", temporary: Path, signum: signal.Signals, code: int
) -> None:
    wait(lambda: len(workers_of(temporary)) >= 4, description="the workers are there", timeout=100)

    demo.send_signal(signum)
    demo.wait(20)

    assert demo.returncode == code
    wait(
        lambda: not workers_of(temporary) and not list(temporary.iterdir()),
        description="its processes and files are gone",
        timeout=100,
    )
