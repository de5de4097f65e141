"""What the tests of SQLite share."""

import pytest


@pytest.fixture
def backend() -> str:
    """The name of the backend."""
    return "sqlite"
