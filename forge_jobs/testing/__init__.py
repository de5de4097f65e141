"""The test kit, and aids for tests, demos and experiments: servers that start by themselves.

pytest users need import nothing: the fixtures ``forge_storage`` and ``forge_kit`` come with the
installation (``docs/testing.md``).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge_jobs.testing.kit.clock import TravelClock as TravelClock
    from forge_jobs.testing.kit.context import FakeContext as FakeContext
    from forge_jobs.testing.kit.context import fake_context as fake_context
    from forge_jobs.testing.kit.draining import Drained as Drained
    from forge_jobs.testing.kit.draining import Ran as Ran
    from forge_jobs.testing.kit.draining import TooManyRuns as TooManyRuns
    from forge_jobs.testing.kit.kit import Kit as Kit
    from forge_jobs.testing.kit.kit import SyncKit as SyncKit
    from forge_jobs.testing.kit.kit import run_inline as run_inline
    from forge_jobs.testing.kit.standing_in import FakeHandler as FakeHandler

# A demo that only starts a server loads none of the kit.
_LAZY = {
    "Drained": "draining",
    "FakeContext": "context",
    "FakeHandler": "standing_in",
    "Kit": "kit",
    "Ran": "draining",
    "SyncKit": "kit",
    "TooManyRuns": "draining",
    "TravelClock": "clock",
    "fake_context": "context",
    "run_inline": "kit",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"forge_jobs.testing.kit.{module}"), name)


__all__ = [
    "Drained",
    "FakeContext",
    "FakeHandler",
    "Kit",
    "Ran",
    "SyncKit",
    "TooManyRuns",
    "TravelClock",
    "fake_context",
    "run_inline",
]
