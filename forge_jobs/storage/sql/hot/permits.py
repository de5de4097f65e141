"""Jobs of limits on SQLite: those that a claim may take, and those on hold until one of their key
ends.

The jobs in progress are what counts, so nothing has to be given back when a claim ends. A claim
that meets a job whose key is full puts the job on hold, out of the index that claims follow. The
end of a claim adds the key to the openings of the queue, and the next claim makes as many jobs of
the key ready as there is room, in the order of the queue. An opening stays while the key has room
and jobs on hold. So a job that was made ready may go without a claim, and keeps no other waiting.

SQLite has one writer. So an end in the transaction of a claim needs no opening: the claim gets the
key from the end. On Postgres the function ``forge_claim_of_limits`` does the same.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import insert

from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, READY, openings
from forge_jobs.storage.sql.base.transaction import HotStatement, Key, Tx

MOST_PARKED = 1000
"""About so many jobs one claim puts on hold, or looks at to do so."""

_MOST_OPENINGS = 500
_ANY = 2**62

_UNEXPIRED = "(expires_at IS NULL OR expires_at > :now)"
# One row at least. Where no job of the queue is on hold, none of a key is looked for.
_LIMITS = HotStatement.of(f"""
    SELECT found.name, found.at_most, found.share,
        EXISTS (SELECT 1 FROM forge_jobs WHERE queue = :queue AND {PARKED}) AS is_waiting
    FROM (SELECT 1) LEFT JOIN forge_limits AS found ON found.queue = :queue
""")
_OPENINGS = HotStatement.of(f"""
    SELECT id, limit_name, limit_key FROM forge_openings
    WHERE queue = :queue AND limit_name NOT IN (
        SELECT name FROM forge_limits WHERE queue = :queue AND share IS NOT NULL
    )
    ORDER BY id
    LIMIT {_MOST_OPENINGS}
""")
_CLOSE = HotStatement.of(
    "DELETE FROM forge_openings WHERE id IN (SELECT value FROM json_each(:ids))"
)
_ADD = HotStatement(insert(openings))
_OF_KEY = "queue = :queue AND limit_name = :name AND limit_key = given.value"
# Given the keys of one limit: pairs would take twice as long to read as all else.
_STATES = """
    SELECT given.value AS key,
        (
            SELECT count(*) FROM forge_jobs WHERE {of_key} AND {claimed} AND limit_name IS NOT NULL
        ) AS used,
        {is_parked} AS is_parked
    FROM json_each(:keys) AS given
"""
_USED, _USED_AND_PARKED = (
    HotStatement.of(_STATES.format(of_key=_OF_KEY, claimed=CLAIMED, is_parked=is_parked))
    for is_parked in ("0", f"EXISTS (SELECT 1 FROM forge_jobs WHERE {_OF_KEY} AND {PARKED})")
)
_FIRST = HotStatement.of(f"""
    SELECT id FROM forge_jobs
    WHERE queue = :queue AND limit_name = :name AND limit_key = :key AND {PARKED} AND {_UNEXPIRED}
    ORDER BY priority, run_at, id
    LIMIT :count
""")
_HOLD = """
    UPDATE forge_jobs SET hold = {hold} WHERE id IN (SELECT value FROM json_each(:ids))
"""
_RELEASE = HotStatement.of(_HOLD.format(hold="NULL"))
_PARK = HotStatement.of(_HOLD.format(hold="'limit'"))
_DUE = HotStatement.of(f"""
    SELECT id, limit_name, limit_key FROM forge_jobs
    WHERE queue = :queue AND priority = :level AND run_at <= :now AND {READY} AND {_UNEXPIRED}
    ORDER BY run_at, id
    LIMIT {MOST_PARKED}
""")
_encode = msgspec.json.encode


class Permits:
    """The limits of a queue as one claim knows them.

    :param wanted: how many jobs the claim may take
    :param freed: keys of which the transaction has ended jobs
    :param is_opened: earlier transactions have left openings
    """

    def __init__(
        self, tx: Tx, queue: str, wanted: int, freed: Sequence[Key] = (), *, is_opened: bool = False
    ) -> None:
        self.admitted: dict[str, Key] = {}
        """Jobs that may be taken."""
        self.parked: set[str] = set()
        """Jobs that were put on hold."""
        self.turned: dict[Key, int] = {}
        """Keys of limits with a share among those, by the first due time."""
        self._tx = tx
        self._queue = queue
        self._wanted = wanted
        rows = tx.rows(_LIMITS, {"queue": queue})
        self._is_waiting = bool(rows[0].is_waiting)
        found = [row for row in rows if row.name is not None]
        # A number that cannot be read holds nothing back.
        self.bounds: dict[str, int] = {row.name: number_or(row.at_most, _ANY) for row in found}
        self.shares: dict[str, int] = {
            row.name: max(number_or(row.share, 1), 1) for row in found if row.share is not None
        }
        # Jobs of these are taken off hold in turn, and never by a look at the queue.
        self._at_most = {**self.bounds, **dict.fromkeys(self.shares, 0)}
        self.freed = [key for key in freed if key[1] in self.shares] if self.shares else []
        """Keys of limits with a share that the transaction has freed."""
        self._left: dict[Key, int] = {}
        self._waiting: set[Key] = set()
        self._opened: set[Key] = set()
        self._ready: set[str] = set()
        self._kept: dict[Key, int] = {}
        self._has_closed = False
        by_key: defaultdict[Key, list[int]] = defaultdict(list)
        for row in tx.rows(_OPENINGS, {"queue": queue}) if is_opened else ():
            by_key[self._key_of(row)].append(row.id)
        self._are_many = sum(map(len, by_key.values())) >= _MOST_OPENINGS
        for key in freed if self._is_waiting else ():
            if key[1] not in self.shares:
                by_key[key] += ()
        if by_key:
            self._open_up(by_key)

    def _open_up(self, by_key: Mapping[Key, list[int]]) -> None:
        """Make jobs ready whose keys have room since the last claim.

        :param by_key: the openings of each key
        """
        self._look(by_key)
        gone: list[int] = []
        for key, ids in by_key.items():
            if self._left[key] > 0 and key in self._waiting:
                self._open(key)
            if self._left[key] > 0 and key in self._waiting:
                if ids:
                    self._kept[key] = ids[0]
                gone += ids[1:]
            else:
                # Nothing waits, or the end of a running job will be another opening.
                gone += ids
        self._close(gone)

    def _close(self, gone: Sequence[int]) -> None:
        if gone:
            self._tx.rows(_CLOSE, {"ids": _listed(gone)})
            self._has_closed = True

    def _look(self, keys: Iterable[Key]) -> None:
        """Learn how much room keys have, and whether jobs of theirs are on hold."""
        unknown: dict[str, list[str]] = {}
        for key in keys:
            if key not in self._left:
                unknown.setdefault(key[1], []).append(key[2])
        statement = _USED_AND_PARKED if self._is_waiting else _USED
        for name, of_name in unknown.items():
            at_most = self._at_most.get(name, _ANY)
            given = {"queue": self._queue, "name": name, "keys": _listed(of_name)}
            for of, used, is_parked in self._tx.rows(statement, given):
                key = self._queue, name, of
                self._left[key] = at_most - used
                if is_parked:
                    self._waiting.add(key)

    def _open(self, key: Key) -> int:
        """Make the first jobs of a key ready, as many as there is room, and return how many."""
        _, name, of = key
        values = {"queue": self._queue, "name": name, "key": of, "now": self._tx.now}
        count = min(self._left[key], self._wanted)
        ids = [row.id for row in self._tx.rows(_FIRST, {**values, "count": count})]
        if ids:
            self._tx.rows(_RELEASE, {"ids": _listed(ids)})
        if len(ids) < count:
            # Others of the key have expired.
            del self._left[key]
            self._waiting.discard(key)
            self._look([key])
        self._opened.add(key)
        self._ready.update(ids)
        return len(ids)

    def admit(self, rows: Sequence[JobRow]) -> bool:
        """Decide which of the rows may be taken. False: look for due jobs again.

        :param rows: due jobs in the order of the queue
        """
        queue, limits, admitted = self._queue, self._at_most, self.admitted
        keyed = [
            (row, (queue, row.limit_name, row.limit_key))
            for row in rows
            if row.limit_name in limits and row.id not in admitted
        ]
        keys = {key: None for _, key in keyed}
        self._look(keys)
        is_changed = False
        for key in keys if self._waiting else ():
            # A job on hold may come before one that was not met yet.
            if self._left[key] > 0 and key in self._waiting and key not in self._opened:
                is_changed |= self._open(key) > 0
        if is_changed:
            return False
        beyond: list[JobRow] = []
        left = self._left
        for row, key in keyed:
            if left[key] > 0:
                left[key] -= 1
                admitted[row.id] = key
            else:
                beyond.append(row)
        if beyond:
            self._park(beyond)
        return not beyond

    def _key_of(self, row: Any) -> Key:
        return self._queue, row.limit_name, row.limit_key

    def _park(self, beyond: Sequence[JobRow]) -> None:
        """Put jobs on hold, and others of full keys behind them."""
        ids = {row.id: self._key_of(row) for row in beyond}
        for row in beyond if self.shares else ():
            if row.limit_name in self.shares:
                key = ids[row.id]
                self.turned[key] = min(self.turned.get(key, row.run_at), row.run_at)
        at = {"queue": self._queue, "level": beyond[0].priority, "now": self._tx.now}
        page = [
            row
            for row in self._tx.rows(_DUE, at)
            if row.limit_name in self._at_most
            and row.limit_name not in self.shares
            and row.id not in self.admitted
        ]
        self._look({self._key_of(row): None for row in page})
        left: dict[Key, int] = {}
        for row in page:
            key = self._key_of(row)
            left[key] = left.get(key, self._left[key]) - 1
            if left[key] < 0:
                ids[row.id] = key
        self._tx.rows(_PARK, {"ids": _listed(list(ids))})
        self.parked.update(ids)
        self._is_waiting = True
        self._waiting.update(ids.values())

    def may_take(self, row: JobRow) -> bool:
        """Return whether a job that was met may be taken."""
        return row.limit_name not in self._at_most or row.id in self.admitted

    @property
    def goes_on(self) -> bool:
        """The claim has closed openings, and others are left."""
        return self._are_many and self._has_closed

    @property
    def is_spent(self) -> bool:
        """The claim has put as many jobs on hold as one may."""
        return len(self.parked) >= MOST_PARKED

    def finish(self, taken: Collection[str]) -> None:
        """Leave what the next claims have to look at, and wake them.

        :param taken: the jobs that the claim takes
        """
        if not self._waiting and not self._ready:
            return
        for job_id in self.admitted.keys() - taken:
            self._left[self.admitted[job_id]] += 1
        self._close([each for key, each in self._kept.items() if self._left.get(key, 1) <= 0])
        rooms = [key for key in self._waiting if self._left.get(key, 0) > 0]
        new = [key for key in rooms if key not in self._kept]
        if new:
            self._tx.put(_ADD, [opening_of(key, self._tx.now) for key in new])
        if self._ready and (rooms or self._ready.difference(taken)):
            self._tx.wake_queue(self._queue)


def opening_of(key: Key, since: int) -> Mapping[str, Any]:
    """Return the row of an opening."""
    queue, name, of = key
    return {"queue": queue, "limit_name": name, "limit_key": of, "since": since}


def _listed(values: Sequence[object]) -> str:
    return _encode(values).decode()
