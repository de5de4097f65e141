"""The tables of cases and of features name tests that exist, and where each case is shown."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.meta.backends_of_tests import TESTS, backends_of_tests
from tests.support.backends import BACKENDS
from tests.support.cases import NAMED

ROOT = TESTS.parent

OWED = range(1, 71)
"""Cases that the table answers."""

_LINKED = re.compile(r"\[`(test_\w+)`\]\(\.\./tests/((?:\w+/)*\w+\.py)\)")


@cache
def names_in(file: Path) -> frozenset[str]:
    """The names of all test functions in a file, in classes too."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, functions) and node.name.startswith("test_")
    )


def rows(document: str) -> dict[str, list[str]]:
    """Number -> the other cells, of each table row that begins with a number."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / document).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0].isdigit():
            assert cells[0] not in found, f"{document} has row {cells[0]} twice"
            found[cells[0]] = cells[1:]
    return found


def is_there(path: str, name: str) -> bool:
    """Return whether a test exists, without collecting the test."""
    file = TESTS / path
    return file.exists() and name in names_in(file)


CASES = rows("tests/CASES.md")
FEATURES = rows("docs/features.md")


def test_no_case_is_left_out() -> None:
    assert {str(number) for number in OWED} - CASES.keys() == set()


def names(text: str) -> frozenset[str]:
    """The backends of a list of their names, or of ``all``."""
    return frozenset(BACKENDS if text.strip() == "all" else re.split(r",\s*", text.strip()))


def where(cell: str) -> tuple[frozenset[str], Mapping[frozenset[str], str]]:
    """Return where a case is shown, and why not elsewhere."""
    shown, reasons = frozenset[str](), {}
    for part in cell.split(";"):
        backends, _, reason = part.partition(":")
        if reason:
            reasons[names(backends)] = reason.strip()
        else:
            shown |= names(backends)
    return shown, reasons


@pytest.mark.long
def test_each_case_names_tests_that_exist() -> None:
    for number, (behaviour, tests, _) in CASES.items():
        row = f"case {number}"
        assert behaviour, row
        named = NAMED.findall(tests)
        said = f"{row} names a test or what it waits for"
        assert named or tests.startswith("not before "), said
        assert tests.count("::") == len(named), f"{row}: a test is written `path.py::test_name`"
        assert [f"{path}::{name}" for path, name in named if not is_there(path, name)] == [], row


@pytest.mark.long
def test_each_case_is_shown_on_each_backend_or_says_why_not() -> None:
    files = {path for cells in CASES.values() for path, _ in NAMED.findall(cells[1])}
    backends = backends_of_tests(files)
    for number, (_, tests, cell) in CASES.items():
        named = [f"{path}::{name}" for path, name in NAMED.findall(tests)]
        run_on = frozenset().union(*(backends[test] for test in named))
        shown, reasons = where(cell)
        assert shown == run_on, f"case {number}: what its tests run on"
        elsewhere = [backend for group in reasons for backend in group]
        row = f"case {number}: each backend once"
        assert sorted([*shown, *elsewhere]) == sorted(BACKENDS), row


def test_each_feature_that_is_done_links_to_tests_that_exist() -> None:
    for number, (_, status, tests) in FEATURES.items():
        linked = _LINKED.findall(tests)
        row = f"row {number}"
        assert status in {"done", "in part", "later"}, row
        assert bool(linked) == (status != "later"), f"{row}: what is done is shown by a test"
        said = f"{row}: a test is linked as [`test_name`](../tests/path.py)"
        assert tests.count("](") == len(linked), said
        assert [f"{path}::{name}" for name, path in linked if not is_there(path, name)] == [], row
