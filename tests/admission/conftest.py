"""The stores of the conformance suite, whose time stands still until a test moves it."""

import pytest

from forge_jobs.storage.sql.postgres.short import claim_cursors
from tests.conformance.conftest import clock, storage

__all__ = ["clock", "storage"]


@pytest.fixture(autouse=True)
def few_dead_entries_count_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL seeds of any size have claims that begin at a cursor."""
    monkeypatch.setattr(claim_cursors, "MANY", 3)
