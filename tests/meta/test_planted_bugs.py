"""The bugs to plant still fit the code; whether they are caught, ``make planted-bugs`` tells."""

from pathlib import Path

import pytest

from tests.meta.bugs import Bug
from tests.meta.lane_bugs import LANE_BUGS
from tests.meta.pass_bugs import PASS_BUGS
from tests.meta.planted_bugs import EVERY
from tests.meta.pod_bugs import POD_BUGS
from tests.meta.policy_bugs import POLICY_BUGS
from tests.meta.postgres_bugs import POSTGRES_BUGS
from tests.meta.redis_bugs import REDIS_BUGS
from tests.meta.runtime_bugs import RUNTIME_BUGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("bug", EVERY, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_and_its_tests_exist(bug: Bug) -> None:
    for edit in bug.edits:
        assert (ROOT / edit.file).read_text().count(edit.old) == 1, edit
    assert bug.tests
    assert all(_is_there(test) for test in bug.tests)


def _is_there(test: str) -> bool:
    """A file, or a test in it as pytest names it."""
    file, *names = test.split("::")
    text = "\n" + (ROOT / file).read_text()
    kinds = ("class {}:", "def {}(", "async def {}(")
    return all(
        any(f"\n{indent}{kind.format(name)}" in text for kind in kinds)
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
