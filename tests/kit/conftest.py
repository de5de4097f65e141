"""The program that the tests of the kit test."""

import pytest

from forge_jobs import HandlerRegistry
from tests.kit import shop


@pytest.fixture
def forge_handlers() -> HandlerRegistry:
    """The registry of the shop."""
    return shop.handlers
