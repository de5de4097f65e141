"""The pytest plugin of forge_jobs: fixtures for tests of handlers. See ``docs/testing.md``.

A package beside forge_jobs, because pytest imports a plugin at every start, also where no test
needs it. Nothing of forge_jobs is imported before the first fixture is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from forge_jobs import HandlerRegistry, Storage
    from forge_jobs.testing import Kit
    from forge_jobs.testing.kit.fixtures import Lent

_HANDLERS = "forge_handlers"
_STORAGE = "forge_storage"
_WHAT = (
    "the store of forge_storage: a URL, of which each process uses a schema, prefix or file of its"
    " own, or postgresql or redis for a server that is started. SQLite in memory when left out"
)
_NO_HANDLERS = (
    "forge_handlers: the test kit does not know the registry of your handlers. Name it in the"
    " settings of pytest, forge_handlers = my_package.jobs:handlers, or define a fixture"
    " forge_handlers that returns it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    parser.addini(_HANDLERS, "forge_jobs: the registry of the handlers, as module:attribute")
    parser.addini(_STORAGE, f"forge_jobs: {_WHAT}")
    parser.getgroup("forge_jobs").addoption("--forge-storage", metavar="URL", help=_WHAT)


@pytest.fixture
def forge_handlers(request: pytest.FixtureRequest) -> "HandlerRegistry":
    """The registry of the program under test: define this fixture, or set ``forge_handlers``."""
    target = request.config.getini(_HANDLERS)
    if not target:
        raise pytest.UsageError(_NO_HANDLERS)
    from forge_jobs import load_registry

    return load_registry(target)


@pytest.fixture
def forge_storage_url(request: pytest.FixtureRequest) -> str:
    """The server of the stores: ``--forge-storage``, or ``forge_storage`` of the settings.

    Define this fixture for a store of your choice, also with parameters for several.
    """
    url: str | None = request.config.getoption("--forge-storage")
    return url or str(request.config.getini(_STORAGE))


@pytest.fixture
def _forge_lent(forge_storage_url: str) -> "Iterator[Lent]":
    from forge_jobs.testing.kit.fixtures import lend

    with lend(forge_storage_url) as lent:
        yield lent


@pytest.fixture
def forge_storage(_forge_lent: "Lent") -> "Storage":
    """An empty store for this test, usable from any event loop."""
    return _forge_lent.storage


@pytest.fixture
def forge_kit(request: pytest.FixtureRequest, _forge_lent: "Lent") -> "Kit":
    """The test kit over ``forge_storage``."""
    return _forge_lent.kit(lambda: request.getfixturevalue("forge_handlers"))
