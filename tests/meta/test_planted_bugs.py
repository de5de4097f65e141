"""The bugs to plant still fit the code; whether they are caught, ``make planted-bugs`` tells."""

from pathlib import Path

import pytest

from tests.meta.bugs import BUGS, Bug
from tests.meta.fleet_bugs import FLEET_BUGS
from tests.meta.odd_bugs import ODD_BUGS

ROOT = Path(__file__).parents[2]
ALL = [*BUGS, *FLEET_BUGS, *ODD_BUGS]


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_and_its_tests_exist(bug: Bug) -> None:
    for edit in bug.edits:
        assert (ROOT / edit.file).read_text().count(edit.old) == 1, edit
    assert bug.tests
    assert all((ROOT / file).is_file() for file in bug.tests)


def test_names_are_told_apart() -> None:
    assert len({bug.name for bug in ALL}) == len(ALL)
