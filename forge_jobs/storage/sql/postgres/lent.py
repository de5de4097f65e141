"""Requests that wait for nobody, stored in a caller's transaction by one statement.

No savepoint is set, and nothing is looked up that could make transactions conflict which have
nothing to do with each other. What is stored already, or whose key is held, is left out; then the
statement is undone, and the script of the same call says what is there.
"""

import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from sqlalchemy import Connection, text

from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.queues import QueueSettings
from forge_jobs.storage.notices import QUEUE
from forge_jobs.storage.sql.config_store import settings_columns
from forge_jobs.storage.sql.postgres.direct import COUNT, MOMENT
from forge_jobs.storage.sql.postgres.enqueues import COLUMNS, COPIED, GIVEN, MOST_QUEUES, rows_of
from forge_jobs.storage.sql.postgres.flavor import NOT_SWITCHED_OFF, PostgresFlavor, quoted_name
from forge_jobs.storage.sql.postgres.sessions import LOCK_S

_OWN = {"clock": "bigint", "part": "text", "channel": "text", "tells": "boolean", "size": "integer"}
_NEW = settings_columns(msgspec.structs.asdict(QueueSettings()))
_KEYED = {**GIVEN, "unique_key": "text"}

# limited: nobody waits for a lock without a limit; a caller's own counts
# made:    before the jobs, as in the script
# whole:   when it is false, nobody is told and nothing is counted
_ENQUEUE = f"""
    WITH {MOMENT}, limited AS MATERIALIZED (
        SELECT before, CASE before WHEN '0' THEN set_config('lock_timeout', '{LOCK_S}s', true) END
        FROM (SELECT current_setting('lock_timeout') AS before) AS setting
    ), given AS MATERIALIZED (
        SELECT * FROM unnest({", ".join(f":{name}" for name in _KEYED)})
            AS one ({", ".join(_KEYED)})
    ), made AS (
        INSERT INTO {{place}}.forge_queues (name, {", ".join(_NEW)})
        SELECT DISTINCT queue, {", ".join(f":new_{name}" for name in _NEW)}
        FROM given CROSS JOIN limited ORDER BY queue
        ON CONFLICT DO NOTHING
        RETURNING name
    ), stored AS (
        INSERT INTO {{place}}.forge_jobs ({", ".join(COLUMNS)}, unique_key)
        SELECT {", ".join(f"given.{name}" for name in COPIED)},
            given.run_at + CASE WHEN given.from_now THEN moment.now ELSE 0 END,
            given.requested_run_at + CASE WHEN given.from_now THEN moment.now ELSE 0 END,
            moment.now, moment.now, given.unique_key
        FROM given CROSS JOIN moment
        WHERE (SELECT count(*) FROM made) >= 0
        ON CONFLICT DO NOTHING
        RETURNING id, queue, run_at
    ), whole AS MATERIALIZED (
        SELECT count(*) = :size AS is_whole FROM stored
    ), news AS (
        SELECT queue, '' AS host_id, 'enqueued' AS name FROM stored CROSS JOIN whole WHERE is_whole
    ), counted AS ({{count}}), due AS (
        SELECT DISTINCT stored.queue FROM stored CROSS JOIN moment CROSS JOIN whole
        WHERE is_whole AND stored.run_at <= moment.now
    ), told AS MATERIALIZED (
        SELECT pg_notify(:channel, string_agg('{QUEUE}' || queue, ',')) FROM due
        HAVING count(*) > 0 AND :tells AND {NOT_SWITCHED_OFF}
    )
    SELECT is_whole, ARRAY(SELECT id FROM stored) AS ids, ARRAY(SELECT name FROM made) AS made,
        (SELECT count(*) FROM told) AS notices,
        CASE before WHEN '0' THEN set_config('lock_timeout', '0', true) END AS waits
    FROM whole CROSS JOIN limited
"""
_UNDO = """
    WITH gone AS (DELETE FROM {place}.forge_jobs WHERE id = ANY (CAST(:ids AS text[])))
    DELETE FROM {place}.forge_queues WHERE name = ANY (CAST(:made AS text[]))
"""
_TYPES = {
    **_OWN,
    **{name: f"{kind}[]" for name, kind in _KEYED.items()},
    **{f"new_{name}": "integer" if name == "max_workers" else "text" for name in _NEW},
}


class Lent:
    """Enqueues by connections that callers lend."""

    def __init__(self, flavor: PostgresFlavor, schema: str) -> None:
        self._flavor = flavor
        place = quoted_name(schema)
        statement = _ENQUEUE.format(
            place=place, count=COUNT.replace("INTO forge_counters", f"INTO {place}.forge_counters")
        )
        for name, kind in _TYPES.items():
            statement = _cast(statement, name, kind)
        self._enqueue = text(statement)
        self._undo = text(_UNDO.format(place=place))
        self._known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        """Connections of drivers, and the store whose database they are of."""

    def enqueue(
        self, connection: Connection, requests: Sequence[NewJob], store_id: str
    ) -> list[EnqueueOutcome] | None:
        """Store them all; None, and nothing, when the script has to say what is in the way."""
        plain: Any = connection.connection
        driver = getattr(plain.driver_connection, "lent", None)
        if driver is None:
            if plain.dbapi_connection.autocommit:
                # Whether a transaction is open at all, a savepoint tells.
                return None
            driver = plain.driver_connection
        if self._known.get(driver) != store_id:
            if self._flavor.identity(connection) != store_id:
                return None
            self._known[driver] = store_id
        rows = rows_of(requests)
        given = {name: [row[name] for row in rows] for name in _KEYED}
        values = {
            **given,
            **{f"new_{name}": value for name, value in _NEW.items()},
            "clock": self._flavor.set_time(),
            "part": new_job_id(),
            "channel": self._flavor.channel,
            "tells": self._flavor.wakes,
            "size": len(rows),
        }
        answer = connection.execute(self._enqueue, values).one()
        if answer.is_whole:
            return [EnqueueOutcome(request.id) for request in requests]
        if answer.ids or answer.made:
            connection.execute(self._undo, {"ids": answer.ids, "made": answer.made})
        return None


def fits(requests: Sequence[NewJob]) -> bool:
    """Whether the statement can take them."""
    return (
        not any(one.after for one in requests)
        and len({one.id for one in requests}) == len(requests)
        and len({one.queue for one in requests}) <= MOST_QUEUES
    )


def _cast(statement: str, name: str, kind: str) -> str:
    return re.sub(rf"(?<![:\w]):{name}\b", f"CAST(:{name} AS {kind})", statement)
