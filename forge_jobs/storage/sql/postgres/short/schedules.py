"""Many schedules advanced by one statement."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Connection, bindparam, text

from forge_jobs.storage.sql.base.tables import schedules
from forge_jobs.storage.sql.postgres.short.many import arrays, columns_of

_WRITTEN = ("version", "next_at", "last_fired_at", "fired", "skipped", "error")
_NAMES = ("name", *_WRITTEN)
_TYPES = {name: schedules.c[name].type for name in _NAMES}
_ADVANCE = text(
    f"""
    UPDATE {schedules.name} AS stored
    SET {", ".join(f"{name} = new.{name}" for name in _WRITTEN)}
    FROM {arrays(_TYPES)} AS new ({", ".join(_NAMES)})
    WHERE stored.name = new.name
    """
).bindparams(*(bindparam(name, type_=ARRAY(kind)) for name, kind in _TYPES.items()))


def advance_schedules(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """See ``Flavor.advance_schedules``."""
    connection.execute(_ADVANCE, columns_of(rows, _NAMES))
