"""What the tests of PostgreSQL share."""

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
    """What is ridden out is no error of SQLAlchemy's pool, of asyncpg or of asyncio."""
    # What is there before the test is not looked through after it.
    gc.collect()
    gc.freeze()
    yield
    # What objects that nobody refers to any more have to say is said now.
    gc.collect()
    loud = [
        (record.name, record.getMessage())
        for when in ("setup", "call", "teardown")
        for record in caplog.get_records(when)
        if record.levelno >= logging.ERROR and record.name.split(".")[0] in _LIBRARIES
    ]
    assert not loud
