"""The bugs to plant still fit the code; whether they are caught, ``make planted-bugs`` tells."""

from pathlib import Path

import pytest

from tests.meta.bugs import Bug
from tests.meta.planted_bugs import EVERY
from tests.meta.postgres_bugs import POSTGRES_BUGS
from tests.meta.redis_bugs import REDIS_BUGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("bug", EVERY, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_and_its_tests_exist(bug: Bug) -> None:
    for edit in bug.edits:
        assert (ROOT / edit.file).read_text().count(edit.old) == 1, edit
    assert bug.tests
    assert all((ROOT / file).is_file() for file in bug.tests)


def test_names_are_told_apart() -> None:
    assert len({bug.name for bug in EVERY}) == len(EVERY)


def test_every_backend_has_its_core_bugs() -> None:
    assert len(POSTGRES_BUGS) >= 40
    assert len(REDIS_BUGS) >= 40
