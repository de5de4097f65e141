"""Requests stored in a caller's transaction by one statement.

No savepoint is set, and no lookup could make unrelated transactions conflict. Requests that are
stored already, or whose key is held, are left out, and a missing or locked parent stores nothing.
In these cases the statement is undone, and a query finds the cause. The script of the same call, in
a savepoint, does only two cases: new requests beside repeats, and waiting for a lock.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from sqlalchemy import Connection, TextClause, text

from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import TERMINAL, EnqueueOutcome, NewJob
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.unique.keys import places_of
from forge_jobs.storage.sql.base.job_columns import NEW
from forge_jobs.storage.sql.base.tables import ACTIVE
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import settings_columns
from forge_jobs.storage.sql.hot.enqueue import given, inserted
from forge_jobs.storage.sql.hot.parts import COUNT, MOMENT
from forge_jobs.storage.sql.jobs.children import LIVE, TOLD
from forge_jobs.storage.sql.jobs.enqueue import answer_alone
from forge_jobs.storage.sql.postgres.driver.sessions import LOCK_S
from forge_jobs.storage.sql.postgres.flavor import NOT_SWITCHED_OFF, PostgresFlavor, quoted_name
from forge_jobs.storage.sql.postgres.short.enqueues import MOST_QUEUES, rows_of
from forge_jobs.storage.wakeups import HANDOVER, QUEUE

_OWN = {"clock": "bigint", "part": "text", "channel": "text", "tells": "boolean", "size": "integer"}
_PLAIN_MODES = ("keep", "error")
_NEW = settings_columns(msgspec.structs.asdict(QueueSettings()))
_KEYED = given(NEW)
# near: the requests whose key an active job holds, in any place of the key: the unique index knows
#       of the first place alone. A SERIALIZABLE transaction does not look, which would make
#       unrelated ones conflict. One look a request, whatever the planner thinks of the table.
_KEYS = {
    "near": f""", near AS MATERIALIZED (
        SELECT given.id FROM given CROSS JOIN LATERAL (
            SELECT FROM {{place}}.forge_jobs AS held
            WHERE held.queue = given.queue AND {ACTIVE} AND held.unique_key IN
                ({", ".join(f"given.unique_key || '{each}'" for each in places_of(""))})
            LIMIT 1
        ) AS held
        WHERE current_setting('transaction_isolation') <> 'serializable'
    )""",
    "free": " AND NOT EXISTS (SELECT FROM near)",
}
_LINKS = {"child": "text", "parent": "text", "child_queue": "text", "rule": "text"}

# limited: sets a limit on waiting for locks. A caller's own limit stays.
# made:    the new queues, inserted before the jobs, as in the script
# whole:   false: no waiter is woken, nothing is counted, and no job is linked
_ENQUEUE = f"""
    WITH {MOMENT}, limited AS MATERIALIZED (
        SELECT before, CASE before WHEN '0' THEN set_config('lock_timeout', '{LOCK_S}s', true) END
        FROM (SELECT current_setting('lock_timeout') AS before) AS setting
    ), given AS MATERIALIZED (
        SELECT * FROM unnest({", ".join(f":{name}" for name in _KEYED)})
            AS one ({", ".join(_KEYED)})
    ), made AS (
        INSERT INTO {{place}}.forge_queues (name, allocation_version, {", ".join(_NEW)})
        SELECT DISTINCT queue, moment.now / 1000, {", ".join(f":new_{name}" for name in _NEW)}
        FROM given CROSS JOIN limited CROSS JOIN moment ORDER BY queue
        ON CONFLICT DO NOTHING
        RETURNING name
    ){{near}}{{found}}, stored AS (
        INSERT INTO {{place}}.forge_jobs ({", ".join(NEW)})
        SELECT {inserted(NEW)}
        FROM given CROSS JOIN moment
        WHERE (SELECT count(*) FROM made) >= 0{{free}}{{gate}}
        ON CONFLICT DO NOTHING
        RETURNING id, queue, status, run_at
    ), whole AS MATERIALIZED (
        SELECT count(*) = :size AS is_whole FROM stored
    ){{linked}}, news AS (
        SELECT queue, '' AS host_id, 'enqueued' AS name FROM stored CROSS JOIN whole WHERE is_whole
    ), counted AS ({{count}}), topics AS (
        SELECT DISTINCT '{QUEUE}' || stored.queue AS topic
        FROM stored CROSS JOIN moment CROSS JOIN whole
        WHERE is_whole AND stored.status = 'pending' AND stored.run_at <= moment.now
        {{told}}
    ), told AS MATERIALIZED (
        SELECT pg_notify(:channel, string_agg(topic, ',')) FROM topics
        HAVING count(*) > 0 AND :tells AND {NOT_SWITCHED_OFF}
    )
    SELECT is_whole, ARRAY(SELECT id FROM stored) AS ids, ARRAY(SELECT name FROM made) AS made,
        (SELECT count(*) FROM told) AS notices,
        CASE before WHEN '0' THEN set_config('lock_timeout', '0', true) END AS waits
    FROM whole CROSS JOIN limited
"""
# found: the parents that are stored already, as of now, locked so that none ends before its child
#        is linked. A parent locked by another transaction is left to the script, which waits.
_PARENTS = {
    "found": """, found AS MATERIALIZED (
        SELECT id, status, has_children FROM {place}.forge_jobs
        WHERE id = ANY (:parents) AND (SELECT count(*) FROM made) >= 0
        FOR NO KEY UPDATE SKIP LOCKED
    )""",
    "gate": " AND (SELECT count(*) FROM found) = cardinality(:parents)",
    "linked": f""", link AS MATERIALIZED (
        SELECT one.*, CASE WHEN found.status = ANY (:ended) THEN found.status END AS ended
        FROM unnest({", ".join(f":{name}" for name in _LINKS)}) AS one ({", ".join(_LINKS)})
        CROSS JOIN whole LEFT JOIN found ON found.id = one.parent
        WHERE is_whole
    ), linked AS (
        INSERT INTO {{place}}.forge_edges (child_id, parent_id, child_queue, on_failure, link)
        SELECT child, parent, child_queue, rule,
            CASE WHEN ended IS NULL THEN '{LIVE}' ELSE '{TOLD}' END
        FROM link ORDER BY child, parent
    ), handed AS (
        INSERT INTO {{place}}.forge_handovers
            (queue, child_id, parent_id, parent_status, on_failure)
        SELECT child_queue, child, parent, ended, rule FROM link WHERE ended IS NOT NULL
        RETURNING id
    ), marked AS (
        UPDATE {{place}}.forge_jobs AS job SET has_children = true
        FROM found CROSS JOIN whole
        WHERE is_whole AND job.id = found.id AND NOT found.has_children
    )""",
    "told": f"UNION ALL SELECT '{HANDOVER}' WHERE EXISTS (SELECT FROM handed)",
}
_NO_PARENTS, _NO_KEYS = dict.fromkeys(_PARENTS, ""), dict.fromkeys(_KEYS, "")
_UNDO = """
    WITH gone AS (DELETE FROM {place}.forge_jobs WHERE id = ANY (CAST(:ids AS text[])))
    DELETE FROM {place}.forge_queues WHERE name = ANY (CAST(:made AS text[]))
"""
_TYPES = {
    **_OWN,
    **{name: f"{kind}[]" for name, kind in (_KEYED | _LINKS).items()},
    "parents": "text[]",
    "ended": "text[]",
    **{f"new_{name}": "integer" if name == "max_workers" else "text" for name in _NEW},
}


class CallersConnections:
    """Enqueues by connections that callers lend."""

    def __init__(self, flavor: PostgresFlavor, schema: str) -> None:
        self._flavor = flavor
        self._enqueues, self._undo = _statements(quoted_name(schema))
        self._known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        """The store id of the database of each driver connection."""

    def enqueue(
        self, connection: Connection, requests: Sequence[NewJob], store_id: str
    ) -> list[EnqueueOutcome] | None:
        """Store all requests, or report why none is stored. None, and nothing stored, for the
        script.

        :raises Conflict: as the script does
        :raises NotFound: as the script does
        """
        plain: Any = connection.connection
        driver = getattr(plain.driver_connection, "lent", None)
        if driver is None:
            if plain.dbapi_connection.autocommit:
                # A savepoint tells whether a transaction is open at all.
                return None
            driver = plain.driver_connection
        if self._known.get(driver) != store_id:
            if self._flavor.identity(connection) != store_id:
                return None
            self._known[driver] = store_id
        rows = rows_of(requests)
        links = _links_of(requests)
        mine = {request.id for request in requests}
        with_children = {link["parent"] for link in links}
        for row in rows:
            row["has_children"] = row["id"] in with_children
        values = {
            **{name: [row[name] for row in rows] for name in _KEYED},
            **{f"new_{name}": value for name, value in _NEW.items()},
            "clock": self._flavor.set_time(),
            "part": new_job_id(),
            "channel": self._flavor.channel,
            "tells": self._flavor.wakes,
            "size": len(rows),
        }
        keyed = any(request.unique is not None for request in requests)
        statement = self._enqueues[keyed, bool(links)]
        if links:
            values["parents"] = sorted(with_children - mine)
            values["ended"] = [each.value for each in TERMINAL]
            values |= {name: [link[name] for link in links] for name in _LINKS}
        answer = connection.execute(statement, values).one()
        if answer.is_whole:
            return [EnqueueOutcome(request.id) for request in requests]
        if answer.ids or answer.made:
            connection.execute(self._undo, {"ids": answer.ids, "made": answer.made})
        with self._flavor.inside(connection):
            tx = Tx(connection, self._flavor, None)
            found = answer_alone(tx, requests)
            if found is not None:
                tx.finish()
        return found


def fits(requests: Sequence[NewJob]) -> bool:
    """Return whether the statement can store the requests."""
    ids = {one.id: place for place, one in enumerate(requests)}
    return (
        len(ids) == len(requests)
        and len({one.queue for one in requests}) <= MOST_QUEUES
        and all(one.sequence is None and one.struck is None for one in requests)
        and all(one.unique is None or one.unique.mode in _PLAIN_MODES for one in requests)
        and all(
            ids.get(after.job_id, -1) < place
            for place, one in enumerate(requests)
            for after in one.after
        )
    )


def _links_of(requests: Sequence[NewJob]) -> list[dict[str, str]]:
    """Return the pairs of child and parent, each once: the last rule counts, as in the script."""
    return [
        {"child": one.id, "parent": parent, "child_queue": one.queue, "rule": rule}
        for one in requests
        for parent, rule in {after.job_id: after.on_failure for after in one.after}.items()
    ]


@lru_cache(maxsize=16)
def _statements(place: str) -> tuple[Mapping[tuple[bool, bool], TextClause], TextClause]:
    """Return a schema's statements: enqueue, by whether there are keys and parents, and remove what
    was stored."""
    enqueues = {
        (keyed, linked): _statement(
            place, (_KEYS if keyed else _NO_KEYS) | (_PARENTS if linked else _NO_PARENTS)
        )
        for keyed in (False, True)
        for linked in (False, True)
    }
    return enqueues, text(_UNDO.format(place=place))


def _statement(place: str, parts: Mapping[str, str]) -> TextClause:
    filled = {name: part.format(place=place) for name, part in parts.items()}
    count = COUNT.replace("INTO forge_counters", f"INTO {place}.forge_counters")
    statement = _ENQUEUE.format(place=place, count=count, **filled)
    for name, kind in _TYPES.items():
        statement = _cast(statement, name, kind)
    return text(statement)


def _cast(statement: str, name: str, kind: str) -> str:
    return re.sub(rf"(?<![:\w]):{name}\b", f"CAST(:{name} AS {kind})", statement)
