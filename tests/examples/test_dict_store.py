"""A backend of one's own: the parts that the store in plain dicts passes, and how they fail."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import copied

pytestmark = [pytest.mark.processes]

PARTS = ("claim", "exchange", "place_in_queue", "retry_time")
SUITE = (sys.executable, "-m", "forge_jobs.testing.conformance")

_GREEDY = """
from dict_store import DictStore, open_store

def due(self, queue, now, original=DictStore._due):
    return [job for job in original(self, queue, now) if job.priority <= 0]

DictStore._due = due
"""


def test_the_store_of_dicts_passes_its_parts(tmp_path: Path) -> None:
    program = copied("dict_store", tmp_path)
    parts = [word for part in PARTS for word in ("--part", part)]

    done = program.run(*SUITE, "dict_store:open_store", *parts, "--", "-q")

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_a_store_that_breaks_a_rule_is_told_so(tmp_path: Path) -> None:
    program = copied("dict_store", tmp_path)
    (program.folder / "greedy.py").write_text(_GREEDY)

    done = program.run(*SUITE, "greedy:open_store", "--part", "claim", "--", "-q", "--tb=no")

    assert done.returncode == 1
    assert "test_the_order_is_priority_then_due_time_then_id" in done.stdout


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    program = copied("dict_store", tmp_path)

    done = program.run(*SUITE, "dict_store:open_store", "--part", "leader", "--", "-q", "-x")

    assert done.returncode == 1
    assert "NotImplementedError: the store of dicts has no 'lead" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dict_store",), "open_store: is 'dict_store'"),
        (("nowhere.to:be",), "there is no module 'nowhere'"),
        (("dict_store:closed",), "dict_store has no function 'closed'"),
        (("tests.stores:open_store",), "the suite is a package named tests too"),
        (("dict_store:open_store", "--part", "clams"), "part: 'clams' is not there; give one of "),
        ((), "name the function that opens the store, or write --list"),
    ],
)
def test_a_call_that_is_wrong_says_what_to_write(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = copied("dict_store", tmp_path).run(*SUITE, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_parts_are_listed_with_their_subjects(tmp_path: Path) -> None:
    done = copied("dict_store", tmp_path).run(*SUITE, "--list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "exchange             JobStore.exchange: finalize and claim in one step." in lines
    assert not any(line.startswith("lost_writes") for line in lines)
    assert len(lines) > 45
