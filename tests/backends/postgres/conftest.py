"""Fixtures of the tests of PostgreSQL."""

import gc
import logging
from collections.abc import Iterator

import pytest

_LIBRARIES = ("asyncio", "asyncpg", "sqlalchemy")


@pytest.fixture
def backend() -> str:
    """The name of the backend."""
    return "postgres"


@pytest.fixture(autouse=True)
def no_errors_of_libraries(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Expect no error in the logs of SQLAlchemy's pool, asyncpg or asyncio."""
    # Objects from before the test are not looked through after the test.
    gc.collect()
    gc.freeze()
    yield
    # Unreferenced objects report now.
    gc.collect()
    loud = [
        (record.name, record.getMessage())
        for when in ("setup", "call", "teardown")
        for record in caplog.get_records(when)
        if record.levelno >= logging.ERROR and record.name.split(".")[0] in _LIBRARIES
    ]
    assert not loud
