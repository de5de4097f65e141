"""Statements that are a transaction of their own: one round trip, directly to the driver.

They are the short way of calls which are made for every job, and of calls which an idle pod makes.
In a case that such a statement does not cover, it changes nothing, or undoes its changes by an
error. Then the script of the same call does the work.
"""

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ClauseElement
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from forge_jobs.storage.sql.hot.parts import clock

_DIALECT: Any = dialect()  # type: ignore[no-untyped-call]
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")


class Direct:
    """A statement for the driver, written with the parameters' names.

    :param types: the parameters, with the type of each
    """

    once = True
    """True for a statement planned once, as every hot statement must be."""

    def __init__(self, statement: str, types: Mapping[str, str]) -> None:
        places = {name: place for place, name in enumerate(types, 1)}
        self._names = tuple(types)
        self.text = _PARAMETER.sub(
            lambda found: f"${places[found[1]]}::{types[found[1]]}", statement
        )

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values in the statement's order."""
        return [values[name] for name in self._names]


class Patient(Direct):
    """The same statement on a session of scripts, which waits for locks for longer."""

    once = False


class DirectScript(Direct):
    """A statement that is all of a script when all goes well. The parameter ``now`` is the time.

    :param core: returns columns
    """

    once = False

    def __init__(self, core: ClauseElement) -> None:
        compiled: Any = core.compile(dialect=_DIALECT)
        self._names = tuple(compiled.positiontup)
        self._fixed = compiled.params
        now = f"${self._names.index('now') + 1}::BIGINT"
        self.text = str(compiled).replace(now, clock(now))

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        return super().arguments({**self._fixed, **values, "now": values["clock"]})
