"""New jobs whose key has no room: on hold from the enqueue on, out of the index that claims follow.

A claim that meets such a job would put the job on hold, one write for each, before the first job
behind starts. The enqueue looks once for each key: whether the key is full, whether jobs of the key
are on hold, and whether keys of the limit take turns. Only jobs that are due at once are looked at.
All others wait for a claim to meet them, as jobs do that come back.

A burst goes on hold as well: a call with many more jobs of a key than the key has room for. Such a
key has an opening until full, and a claim that sees one decides about each job. So few keys
of a queue have bursts on hold at once, and none where many other jobs are ready before them.

No job may stay on hold while the key has room, and no claim looks at a key without an opening.
SQLite has one writer, so what the look finds is true when the job is there. On Postgres a claim may
take the last job off hold before the new job can be seen. So a script leaves an opening for each
key, with which the next claim looks again. The statement for plain requests locks the last job on
hold instead: while that one is on hold, an opening stays with the room (``hot/enqueue.py``).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from sqlalchemy import ARRAY, Text, bindparam, insert, text

from forge_jobs.model.jobs import Hold, NewJob
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, READY, openings
from forge_jobs.storage.sql.base.transaction import HotStatement, Key, Tx
from forge_jobs.storage.sql.hot.permits import opening_of

MANY = 100
"""So many more jobs than the room of their key are a burst."""

MOST_OPEN = 20
"""So many openings a queue may have where another burst goes on hold."""

IN_FRONT = 4
"""A burst goes on hold with so many times as many jobs as the queue has ready ones."""

_OF_KEY = "queue = {queue} AND limit_name = {name} AND limit_key = {key}"
# The last job on hold: others of the key may have expired, and never be read.
_LOOK = f"""
    SELECT {{queue}} AS queue, {{name}} AS name, {{key}} AS key, bound.share, bound.at_most,
        (
            SELECT count(*) FROM forge_jobs
            WHERE {_OF_KEY} AND {CLAIMED} AND limit_name IS NOT NULL AND bound.at_most IS NOT NULL
        ) AS used,
        (
            SELECT coalesce(expires_at, :never) FROM forge_jobs WHERE {_OF_KEY} AND {PARKED}
            ORDER BY priority DESC, run_at DESC, id DESC
            LIMIT 1
        ) AS last_until
    FROM {{given}}
    LEFT JOIN forge_limits AS bound ON bound.queue = {{queue}} AND bound.name = {{name}}
"""
# Keys of one limit.
_IN_FILE = HotStatement.of(
    _LOOK.format(given="json_each(:keys) AS given", queue=":queue", name=":name", key="given.value")
)
# Keys of any limits: the server may be far away.
_LISTS = ("queues", "names", "keys")
_ON_SERVER = HotStatement(
    text(
        _LOOK.format(
            given="unnest(:queues, :names, :keys) AS given (of_queue, of_name, of_key)",
            queue="of_queue",
            name="of_name",
            key="of_key",
        )
    ).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in _LISTS))
)
_LINE = HotStatement.of(f"""
    SELECT (
            SELECT count(*) FROM (
                SELECT run_at FROM forge_jobs WHERE queue = :queue AND {READY}
                ORDER BY priority, run_at
                LIMIT :most
            ) AS first
            WHERE run_at <= :now
        ) AS ready, (
            SELECT count(*) FROM (
                SELECT id FROM forge_openings WHERE queue = :queue LIMIT {MOST_OPEN}
            ) AS one
        ) AS opened
""")
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
    counts = Counter(key_of(one) for one in requests if is_due_at_once(one))
    if not counts or (tx.flavor.locks_rows and tx.is_callers):
        # A look in a caller's transaction could make unrelated ones conflict.
        return set()
    look = _Look(tx, counts)
    look.at_keys()
    look.at_bursts()
    return look.found


class _Look:
    """The keys of the new jobs of one call, and those whose jobs go on hold.

    :param counts: how many jobs of each key are new
    """

    def __init__(self, tx: Tx, counts: Mapping[Key, int]) -> None:
        self.found: set[Key] = set()
        self._tx = tx
        self._is_file = not tx.flavor.locks_rows
        self._counts = counts
        self._bursts: list[Key] = []

    def at_keys(self) -> None:
        """Look at each key once."""
        tx, is_file = self._tx, self._is_file
        turns: list[Key] = []
        for row in self._rows():
            key = row.queue, row.name, row.key
            is_behind = row.last_until is not None and number_or(row.last_until, 0) > tx.now
            room = _ANY if row.at_most is None else number_or(row.at_most, _ANY) - row.used
            if is_behind or room <= 0 or row.share is not None:
                self.found.add(key)
                if not is_file or not (is_behind or room <= 0):
                    turns.append(key)
            elif self._counts[key] > room + MANY:
                self._bursts.append(key)
        self._open(turns)

    def _rows(self) -> Iterator[Any]:
        if not self._is_file:
            lists = dict(zip(_LISTS, map(list, zip(*self._counts, strict=True)), strict=True))
            yield from self._tx.rows(_ON_SERVER, {**lists, "never": _NEVER})
            return
        named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for queue, name, key in self._counts:
            named[queue, name].append(key)
        for (queue, name), keys in named.items():
            listed = msgspec.json.encode(keys).decode()
            values = {"queue": queue, "name": name, "keys": listed, "never": _NEVER}
            yield from self._tx.rows(_IN_FILE, values)

    def at_bursts(self) -> None:
        """Decide which bursts go on hold, the largest ones of a queue first."""
        left: dict[str, int] = {}
        ready: dict[str, int] = {}
        chosen: list[Key] = []
        for key in sorted(self._bursts, key=self._counts.__getitem__, reverse=True):
            queue, most = key[0], self._counts[key] // IN_FRONT
            if queue not in left:
                values = {"queue": queue, "most": most, "now": self._tx.now}
                [line] = self._tx.rows(_LINE, values)
                left[queue], ready[queue] = MOST_OPEN - line.opened, line.ready
            if left[queue] > 0 and ready[queue] < most:
                left[queue] -= 1
                chosen.append(key)
        self.found.update(chosen)
        self._open(chosen)

    def _open(self, keys: Collection[Key]) -> None:
        if not self._is_file:
            for key in keys:
                self._tx.free(*key)
        elif keys:
            self._tx.put(_ADD, [opening_of(key, self._tx.now) for key in keys])


def hold_of(request: NewJob, full: Collection[Key]) -> str | None:
    """Return the hold of a new job, None for a job that is ready.

    :param full: what :func:`without_room` has found
    """
    is_held = full and is_due_at_once(request) and key_of(request) in full
    return Hold.LIMIT.value if is_held else None
