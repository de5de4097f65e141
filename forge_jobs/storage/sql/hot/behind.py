"""New jobs whose key has no room: on hold from the enqueue on, out of the index that claims follow.

A claim that meets such a job would put the job on hold, one write for each, before the first job
behind starts. The enqueue looks once for each key: whether the key is full, whether jobs of the key
are on hold, and whether keys of the limit take turns. Only jobs that are due at once are looked at.
All others wait for a claim to meet them, as jobs do that come back.

No job may stay on hold while the key has room, and no claim looks at a key without an opening.
SQLite has one writer, so what the look finds is true when the job is there. On Postgres a claim may
take the last job off hold before the new job can be seen. So a script leaves an opening for each
key, with which the next claim looks again. The statement for plain requests locks the last job on
hold instead: while that one is on hold, an opening stays with the room (``hot/enqueue.py``).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from sqlalchemy import ARRAY, Text, bindparam, insert, text

from forge_jobs.model.jobs import Hold, NewJob
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, openings
from forge_jobs.storage.sql.base.transaction import HotStatement, Key, Tx
from forge_jobs.storage.sql.hot.permits import opening_of

_OF_KEY = "queue = :queue AND limit_name = :name AND limit_key = given.value"
# The last job on hold: others of the key may have expired, and never be read.
_LOOK = f"""
    SELECT given.value AS key, bound.share, bound.at_most,
        (
            SELECT count(*) FROM forge_jobs
            WHERE {_OF_KEY} AND {CLAIMED} AND limit_name IS NOT NULL AND bound.at_most IS NOT NULL
        ) AS used,
        (
            SELECT coalesce(expires_at, :never) FROM forge_jobs WHERE {_OF_KEY} AND {PARKED}
            ORDER BY priority DESC, run_at DESC, id DESC
            LIMIT 1
        ) AS last_until
    FROM {{listed}} AS given {{columns}}
    LEFT JOIN forge_limits AS bound ON bound.queue = :queue AND bound.name = :name
"""
_IN_FILE = HotStatement.of(_LOOK.format(listed="json_each(:keys)", columns=""))
_ON_SERVER = HotStatement(
    text(_LOOK.format(listed="unnest(:keys)", columns="(value)")).bindparams(
        bindparam("keys", type_=ARRAY(Text))
    )
)
_ADD = HotStatement(insert(openings))
_NEVER = 2**62
_ANY = 2**62


def is_due_at_once(request: NewJob) -> bool:
    """Return whether a new job of a limit may go on hold with the enqueue."""
    return (
        request.limit_name != ""
        and request.run_at is None
        and request.delay is None
        and not request.after
        and request.struck is None
    )


def key_of(request: NewJob) -> Key:
    """Return the key of the limit of a new job."""
    return request.queue, request.limit_name, request.limit_key


def without_room(tx: Tx, requests: Iterable[NewJob]) -> set[Key]:
    """Return the keys whose new jobs go on hold, and leave what the next claims have to look at."""
    named: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for one in requests:
        if is_due_at_once(one):
            named[one.queue, one.limit_name][one.limit_key] = None
    found: set[Key] = set()
    if not named or (tx.flavor.locks_rows and tx.is_callers):
        # A look in a caller's transaction could make unrelated ones conflict.
        return found
    for (queue, name), keys in named.items():
        found |= _looked_up(tx, queue, name, list(keys))
    return found


def _looked_up(tx: Tx, queue: str, name: str, keys: list[str]) -> set[Key]:
    is_file = not tx.flavor.locks_rows
    listed: Any = msgspec.json.encode(keys).decode() if is_file else keys
    values = {"queue": queue, "name": name, "keys": listed, "never": _NEVER}
    found: set[Key] = set()
    turns: list[Key] = []
    for row in tx.rows(_IN_FILE if is_file else _ON_SERVER, values):
        key = queue, name, row.key
        is_behind = row.last_until is not None and number_or(row.last_until, 0) > tx.now
        is_full = row.at_most is not None and row.used >= number_or(row.at_most, _ANY)
        if is_behind or is_full or row.share is not None:
            found.add(key)
            if not is_file:
                tx.free(*key)
            elif not is_behind and not is_full:
                turns.append(key)
    if turns:
        tx.put(_ADD, [opening_of(key, tx.now) for key in turns])
    return found


def hold_of(request: NewJob, full: Collection[Key]) -> str | None:
    """Return the hold of a new job, None for a job that is ready.

    :param full: what :func:`without_room` has found
    """
    is_held = full and is_due_at_once(request) and key_of(request) in full
    return Hold.LIMIT.value if is_held else None
