"""Jobs of limits: those that a claim may take, and those on hold until a job of their key ends.

The jobs in progress are what counts, so nothing has to be given back when a claim ends. A claim
that meets a job whose key is full puts the job on hold, out of the index that claims follow. The
end of a claim adds the key to the openings of the queue, and the next claim makes as many jobs of
the key ready as there is room, in the order of the queue. An opening stays while the key has room
and jobs on hold. So a job that was made ready may go without a claim, and keeps no other waiting.

Claims of a queue with limits hold a lock of the queue. Ends do not wait for that lock: an end that
a claim does not see yet adds an opening that the next claim sees.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import bindparam, delete, insert, or_, select, text, update

from forge_jobs.model.jobs import Hold
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, READY, jobs, limits, openings
from forge_jobs.storage.sql.base.transaction import Key, Tx

MOST_PARKED = 1000
"""About so many jobs one claim puts on hold, or looks at to do so."""

_MOST_OPENINGS = 500
_ANY = 2**62

_now: Any = bindparam("now")
_unexpired = or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > _now)
_LIMITS = select(limits.c.name, limits.c.at_most).where(limits.c.queue == bindparam("queue"))
_OPENINGS = (
    select(openings.c.id, openings.c.limit_name, openings.c.limit_key)
    .where(openings.c.queue == bindparam("queue"))
    .order_by(openings.c.id)
    .limit(_MOST_OPENINGS)
)
_CLOSE = delete(openings).where(one_of(openings.c.id, "ids"))
_ADD = insert(openings)
_OF_KEY = """queue = :queue AND limit_name = given.name AND limit_key = given.key"""
_STATES = f"""
    SELECT given.name, given.key,
        (
            SELECT count(*) FROM forge_jobs WHERE {_OF_KEY} AND {CLAIMED} AND limit_name IS NOT NULL
        ) AS used,
        EXISTS (SELECT 1 FROM forge_jobs WHERE {_OF_KEY} AND {PARKED}) AS is_parked
    FROM ({{given}}) AS given
"""
_GIVEN = {
    "sqlite": """
        SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS key
        FROM json_each(:keys)
    """,
    "postgresql": """
        SELECT value ->> 0 AS name, value ->> 1 AS key
        FROM json_array_elements(CAST(:keys AS json)) AS listed (value)
    """,
}
_STATES_OF = {name: text(_STATES.format(given=given)) for name, given in _GIVEN.items()}
_FIRST = (
    select(jobs.c.id)
    .where(
        jobs.c.queue == bindparam("queue"),
        jobs.c.limit_name == bindparam("name"),
        jobs.c.limit_key == bindparam("key"),
        text(PARKED),
        _unexpired,
    )
    .order_by(jobs.c.priority, jobs.c.run_at, jobs.c.id)
    .limit(bindparam("count"))
    .with_for_update(key_share=True, skip_locked=True)
)
_RELEASE = update(jobs).where(one_of(jobs.c.id, "ids")).values(hold=None)
_PARK = update(jobs).where(one_of(jobs.c.id, "ids")).values(hold=Hold.LIMIT.value)
_DUE = (
    select(jobs.c.id, jobs.c.limit_name, jobs.c.limit_key)
    .where(
        jobs.c.queue == bindparam("queue"),
        jobs.c.priority == bindparam("level"),
        jobs.c.run_at <= _now,
        text(READY),
        _unexpired,
    )
    .order_by(jobs.c.run_at, jobs.c.id)
    .limit(MOST_PARKED)
    .with_for_update(key_share=True, skip_locked=True)
)


class Limited(NamedTuple):
    """A job that a claim has met."""

    id: str
    limit_name: str | None
    limit_key: str
    priority: int


class Permits:
    """The limits of a queue as one claim knows them. The claim holds the lock.

    :param wanted: how many jobs the claim may take
    """

    def __init__(self, tx: Tx, queue: str, wanted: int) -> None:
        self.admitted: dict[str, Key] = {}
        """Jobs that may be taken."""
        self.parked: set[str] = set()
        """Jobs that were put on hold."""
        self._tx = tx
        self._queue = queue
        self._wanted = wanted
        found = tx.execute(_LIMITS, {"queue": queue})
        # A number that cannot be read holds nothing back.
        self._at_most = {row.name: number_or(row.at_most, _ANY) for row in found}
        self._left: dict[Key, int] = {}
        self._waiting: set[Key] = set()
        self._opened: set[Key] = set()
        self._ready: set[str] = set()
        self._kept: set[Key] = set()
        self._open_up()

    def _open_up(self) -> None:
        """Make jobs ready whose keys have room since the last claim."""
        by_key: defaultdict[Key, list[int]] = defaultdict(list)
        for row in self._tx.execute(_OPENINGS, {"queue": self._queue}):
            by_key[self._queue, row.limit_name, row.limit_key].append(row.id)
        self._look(by_key)
        gone: list[int] = []
        for key, ids in by_key.items():
            if self._left[key] > 0 and key in self._waiting:
                self._open(key)
            if self._left[key] > 0 and key in self._waiting:
                self._kept.add(key)
                gone += ids[1:]
            else:
                # Nothing waits, or the end of a running job will be another opening.
                gone += ids
        if gone:
            self._tx.execute(_CLOSE, {"ids": gone})

    def _look(self, keys: Iterable[Key]) -> None:
        """Learn how much room keys have, and whether jobs of theirs are on hold."""
        unknown = [key for key in keys if key not in self._left]
        if not unknown:
            return
        listed = msgspec.json.encode([(name, key) for _, name, key in unknown]).decode()
        statement = _STATES_OF[self._tx.flavor.name]
        for row in self._tx.execute(statement, {"queue": self._queue, "keys": listed}):
            key = self._queue, row.name, row.key
            self._left[key] = self._at_most.get(row.name, _ANY) - row.used
            if row.is_parked:
                self._waiting.add(key)

    def _open(self, key: Key) -> int:
        """Make the first jobs of a key ready, as many as there is room, and return how many."""
        _, name, of = key
        values = {"queue": self._queue, "name": name, "key": of, "now": self._tx.now}
        count = min(self._left[key], self._wanted)
        ids = self._tx.execute(_FIRST, {**values, "count": count}).scalars().all()
        if ids:
            self._tx.execute(_RELEASE, {"ids": ids})
        if len(ids) < count:
            # Others of the key may be locked by a caller, or have expired.
            del self._left[key]
            self._waiting.discard(key)
            self._look([key])
        self._opened.add(key)
        self._ready.update(ids)
        return len(ids)

    def admit(self, rows: Sequence[Limited]) -> bool:
        """Decide which of the rows may be taken. False: look for due jobs again.

        :param rows: due jobs in the order of the queue
        """
        keyed = [
            row for row in rows if row.limit_name in self._at_most and row.id not in self.admitted
        ]
        self._look({self._key_of(row): None for row in keyed})
        is_changed = False
        for key in {self._key_of(row): None for row in keyed}:
            # A job on hold may come before one that was not met yet.
            if self._left[key] > 0 and key in self._waiting and key not in self._opened:
                is_changed |= self._open(key) > 0
        if is_changed:
            return False
        beyond: list[Limited] = []
        for row in keyed:
            key = self._key_of(row)
            if self._left[key] > 0:
                self._left[key] -= 1
                self.admitted[row.id] = key
            else:
                beyond.append(row)
        if beyond:
            self._park(beyond)
        return not beyond

    def _key_of(self, row: Any) -> Key:
        return self._queue, row.limit_name, row.limit_key

    def _park(self, beyond: Sequence[Limited]) -> None:
        """Put jobs on hold, and others of full keys behind them."""
        ids = {row.id: self._key_of(row) for row in beyond}
        at = {"queue": self._queue, "level": beyond[0].priority, "now": self._tx.now}
        page = [
            row
            for row in self._tx.execute(_DUE, at).all()
            if row.limit_name in self._at_most and row.id not in self.admitted
        ]
        self._look({self._key_of(row): None for row in page})
        left: dict[Key, int] = {}
        for row in page:
            key = self._key_of(row)
            left[key] = left.get(key, self._left[key]) - 1
            if left[key] < 0:
                ids[row.id] = key
        self._tx.execute(_PARK, {"ids": list(ids)})
        self.parked.update(ids)
        self._waiting.update(ids.values())

    def may_take(self, row: Limited) -> bool:
        """Return whether a job that was met may be taken."""
        return row.limit_name not in self._at_most or row.id in self.admitted

    @property
    def is_spent(self) -> bool:
        """The claim has put as many jobs on hold as one may."""
        return len(self.parked) >= MOST_PARKED

    def finish(self, taken: Collection[str]) -> None:
        """Leave what the next claims have to look at, and wake them.

        :param taken: the jobs that the claim takes
        """
        for job_id in self.admitted.keys() - taken:
            self._left[self.admitted[job_id]] += 1
        rooms = [key for key in self._waiting if self._left.get(key, 0) > 0]
        new = [key for key in rooms if key not in self._kept]
        if new:
            self._tx.execute(_ADD, [_row(key) for key in new])
        if self._ready and (rooms or self._ready.difference(taken)):
            self._tx.wake_queue(self._queue)


def _row(key: Key) -> Mapping[str, str]:
    queue, name, of = key
    return {"queue": queue, "limit_name": name, "limit_key": of}
