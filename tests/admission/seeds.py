"""The seeds that each part of a test of admission tries, by the store."""

import os
from collections.abc import Iterable

import pytest

_ONE = os.environ.get("FORGE_TEST_ADMISSION_SEED")
_MANY = int(os.environ.get("FORGE_TEST_ADMISSION_SEEDS", "0"))
_COUNTS = {"sqlite": 100, "redis": 30}
_FEW = 10

PARTS = 5

# Two thousand seeds of a part take ten minutes beside other work.
LONG_ENOUGH = pytest.mark.timeout(600 + _MANY)


def seeds(backend: str, part: int) -> Iterable[int]:
    """Return the seeds of one of so many parts."""
    if _ONE:
        return [int(_ONE)] if part == 0 else []
    return range(part, _MANY or _COUNTS.get(backend, _FEW), PARTS)
