"""The tests that the table of cases names."""

import re
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parents[1] / "CASES.md"
NAMED = re.compile(r"`((?:\w+/)*\w+\.py)::(test_\w+)`")


@cache
def named_cases() -> frozenset[str]:
    """Return the ids of the tests, without classes. The table says where each case is shown."""
    return frozenset(f"tests/{path}::{name}" for path, name in NAMED.findall(TABLE.read_text()))
