"""What the tests of PostgreSQL share."""

import pytest


@pytest.fixture
def backend() -> str:
    """The name of the backend."""
    return "postgres"
