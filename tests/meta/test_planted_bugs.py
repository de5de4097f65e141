"""The bugs to plant still fit the code. ``make planted-bugs`` shows whether they are caught."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.meta import planted_bugs
from tests.meta.bugs import Bug
from tests.meta.lane_bugs import LANE_BUGS
from tests.meta.pass_bugs import PASS_BUGS
from tests.meta.planted_bugs import EVERY, GROUPS
from tests.meta.pod_bugs import POD_BUGS
from tests.meta.policy_bugs import POLICY_BUGS
from tests.meta.postgres_bugs import POSTGRES_BUGS
from tests.meta.redis_bugs import REDIS_BUGS
from tests.meta.runtime_bugs import RUNTIME_BUGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("group", GROUPS)
def test_each_bug_can_be_planted_and_its_tests_exist(group: str) -> None:
    wrong = [(bug.name, why) for bug in GROUPS[group] for why in _obstacles(bug)]
    assert wrong == []


def _obstacles(bug: Bug) -> Iterator[object]:
    """Yield what keeps the bug from being planted, or from being caught."""
    yield from (edit for edit in bug.edits if _text(edit.file).count(edit.old) != 1)
    if not bug.tests:
        yield "no test"
    yield from (test for test in bug.tests if not _is_there(test))


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


def _is_there(test: str) -> bool:
    """Return whether there is such a file, or such a test as pytest names it."""
    file, *names = test.partition("[")[0].split("::")
    text = "\n" + _text(file)
    kinds = ("class {}:", "def {}(", "async def {}(")
    return all(
        any(f"\n{indent}{kind.format(name.partition('[')[0])}" in text for kind in kinds)
        for name, indent in zip(names, ("", "    "), strict=False)
    )


def test_names_are_told_apart() -> None:
    assert len({bug.name for bug in EVERY}) == len(EVERY)


def test_every_backend_has_its_core_bugs() -> None:
    assert len(POSTGRES_BUGS) >= 40
    assert len(REDIS_BUGS) >= 40


def test_the_runtime_and_its_policies_have_bugs_whose_tests_name_the_rule() -> None:
    planted = (*RUNTIME_BUGS, *PASS_BUGS, *POD_BUGS, *POLICY_BUGS, *LANE_BUGS)
    assert len(planted) >= 150
    assert all("::test_" in test or "::Test" in test for bug in planted for test in bug.tests)


def test_a_draw_is_the_same_for_one_seed() -> None:
    names = [bug.name for bug in planted_bugs.drawn(EVERY, 20, 7)]
    assert len(set(names)) == 20
    assert names == [bug.name for bug in planted_bugs.drawn(tuple(reversed(EVERY)), 20, 7)]
    assert names != [bug.name for bug in planted_bugs.drawn(EVERY, 20, 8)]


@pytest.mark.parametrize(
    ("ended", "word"),
    [
        ((1, "FAILED tests/a.py::test_a - assert 1 == 2"), "caught"),
        ((1, "FAILED tests/a.py::test_a - Failed: Timeout (>120.0s) from pytest-timeout."), "hung"),
        ((1, "pytest.PytestAssertRewriteWarning: Module already imported"), "error"),
        ((planted_bugs.TIMED_OUT, ""), "hung"),
        ((0, ""), "missed"),
        ((2, "interrupted"), "error"),
    ],
)
def test_a_bug_is_caught_by_a_test_that_fails_and_not_by_one_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, ended: tuple[int, str], word: str
) -> None:
    monkeypatch.setattr(planted_bugs, "run_tests", lambda *_: ended)
    assert planted_bugs.verdict(EVERY[0]).word == word


def test_the_table_counts_by_group_and_altogether() -> None:
    first, last = EVERY[0], EVERY[-1]
    words = {first: "caught", last: "hung"}
    verdicts = [planted_bugs.Verdict(bug, word, "", 0.0) for bug, word in words.items()]
    lines = planted_bugs.table(verdicts).splitlines()
    rows = ["| stores | 1 | 0 | 0 | 0 |", "| pod | 0 | 0 | 1 | 0 |", "| all | 1 | 0 | 1 | 0 |"]
    assert lines[2:] == rows
