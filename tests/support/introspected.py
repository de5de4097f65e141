"""PostgreSQL's own types, asked for once in a test process.

Each asyncpg connection asks by itself, which takes the server longer than most tests' statements.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import asyncpg

_FIRST_OF_USERS = 16_384
"""Below, all databases and releases give a type the same number."""


def share_introspected_types() -> None:
    """Let all connections share the types. To be called once."""
    connections: Any = asyncpg.Connection
    ask = connections._introspect_types
    known: dict[frozenset[int], Any] = {}
    # A name says that the statement which is being prepared was not replaced meanwhile.
    not_asked = SimpleNamespace(name="not asked")

    async def introspect(self: Any, wanted: Iterable[int], timeout: float) -> Any:
        types = frozenset(wanted)
        if types in known:
            return known[types], not_asked
        answer = await ask(self, types, timeout)
        if max(types) < _FIRST_OF_USERS:
            known[types] = answer[0]
        return answer

    connections._introspect_types = introspect
