"""A cache of compiled statements for all engines of a test process.

SQLAlchemy keeps compiled statements with an engine, and each test opens new engines.
"""

from typing import Any

import sqlalchemy.engine.base as engines
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_MOST = 5_000


def share_compiled_statements() -> None:
    """Let equal dialects share. To be called once, before the first engine is made."""
    shared: Any = LRUCache(_MOST)
    init = engines.Engine.__init__

    def share(self: engines.Engine, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._compiled_cache = shared

    engines.Engine.__init__ = share  # type: ignore[method-assign]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    DefaultDialect.__eq__ = _are_alike  # type: ignore[method-assign]


def _are_alike(one: object, other: object) -> bool:
    return type(one) is type(other) and _traits(one) == _traits(other)


def _traits(dialect: object) -> list[object]:
    return [getattr(dialect, name, None) for name in ("server_version_info", "paramstyle")]
