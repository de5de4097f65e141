"""Fixtures of the tests of SQLite."""

import pytest


@pytest.fixture
def backend() -> str:
    """The name of the backend."""
    return "sqlite"
