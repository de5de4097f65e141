"""Fair shares: the keys of a limit with a share take turns.

All jobs of such a limit go on hold when they are due, and an opening is the turn of a key with jobs
on hold, so the key with the oldest opening comes first. A claim that takes a job of a key
makes a new opening, the last one. So a key with a hundred thousand jobs on hold has one place among
the others. Turns come second: a key comes first that has the fewest jobs in progress in proportion
to the share. Nothing has to be given back, and a pod without work always finds the jobs on hold.

PostgreSQL has the same in the function ``forge_claim_of_limits``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import bindparam, delete, insert, select, text, update

from forge_jobs.model.jobs import Hold
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, READY, jobs, limits, openings
from forge_jobs.storage.sql.base.transaction import Key, Tx
from forge_jobs.storage.sql.hot.permits import MOST_PARKED, Permits, opening_of

_MOST_TURNS = 100
"""So many keys a claim looks at, or as many as jobs are asked for where those are more."""

_MOST_READ = 2000
_BELOW_ALL = -(2**31)

_SHARED = select(limits.c.name).where(
    limits.c.queue == bindparam("queue"), limits.c.share.is_not(None)
)
_TURNS = (
    select(openings.c.id, openings.c.limit_name, openings.c.limit_key, openings.c.since)
    .where(openings.c.queue == bindparam("queue"), openings.c.limit_name.in_(_SHARED))
    .order_by(openings.c.id)
    .limit(bindparam("most"))
)
_CLOSE = delete(openings).where(one_of(openings.c.id, "ids"))
_ADD = insert(openings)
_NEXT_LEVEL = text(f"""
    SELECT priority, run_at FROM forge_jobs
    WHERE queue = :queue AND priority > :level AND {READY}
    ORDER BY priority, run_at
    LIMIT 1
""")
_DUE = text(f"""
    SELECT id, kind, limit_name, limit_key, run_at FROM forge_jobs
    WHERE queue = :queue AND priority = :level AND run_at <= :now AND {READY}
        AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY run_at, id
    LIMIT :count
""")
_OF_KEY = "queue = :queue AND limit_name = given.name AND limit_key = given.key"
_WAITING = text(f"""
    SELECT given.name, given.key,
        (
            SELECT count(*) FROM forge_jobs WHERE {_OF_KEY} AND {CLAIMED} AND limit_name IS NOT NULL
        ) AS used,
        (
            SELECT json_group_array(json_array(id, kind, priority, run_at, crashes)) FROM (
                SELECT id, kind, priority, run_at, crashes FROM forge_jobs
                WHERE {_OF_KEY} AND {PARKED} AND (expires_at IS NULL OR expires_at > :now)
                ORDER BY priority, run_at, id
                LIMIT :count
            )
        ) AS first
    FROM (
        SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS key
        FROM json_each(:keys)
    ) AS given
""")
_HOLD = update(jobs).where(one_of(jobs.c.id, "ids"))
_PARK = _HOLD.values(hold=Hold.LIMIT.value)
_RELEASE = _HOLD.values(hold=None)


class Turn(NamedTuple):
    """A job on hold that comes next.

    :ivar place: of the job in the order of the queue, with the time of the turn
    """

    job_id: str
    key: Key
    place: tuple[int, int]


class Turns:
    """The keys of limits with a share, as one claim knows them. The claim holds the lock.

    :param permits: of the same claim
    """

    def __init__(
        self,
        tx: Tx,
        queue: str,
        demand: Demand,
        permits: Permits,
    ) -> None:
        self._tx = tx
        self._queue = queue
        self._demand = demand
        self._shares = permits.shares
        self._bounds = permits.bounds
        self._freed = {*permits.freed}
        self._new: dict[Key, int] = dict.fromkeys(permits.freed, tx.now)
        self._rows: defaultdict[Key, list[int]] = defaultdict(list)
        self._since: dict[Key, int] = {}
        self._used: dict[Key, int] = {}
        self._waiting: dict[Key, int] = {}
        self._looked: dict[Key, int] = {}
        self._are_more_keys = False
        self._chosen: dict[str, Key] = {}
        self.is_cut = False
        """More jobs are due, or may be."""

    def drain(self) -> bool:
        """Put the jobs of shared limits that come first on hold. False: there are more."""
        count, parked = self._demand.limit, 0
        while True:
            page = self._first_due(count)
            mine = [
                row
                for row in page
                if row.limit_name in self._shares and row.kind in self._demand.kinds
            ]
            if mine:
                self._tx.execute(_PARK, {"ids": [row.id for row in mine]})
                parked += len(mine)
            for row in mine:
                self._note((self._queue, row.limit_name, row.limit_key), row.run_at)
            if not mine or len(page) < count:
                return True
            if parked >= MOST_PARKED:
                return False
            count = MOST_PARKED

    def note(self, turned: Mapping[Key, int]) -> None:
        """Take note of jobs that were met behind others that the claim passes over, and were put
        on hold.

        :param turned: the keys of these jobs, by the first due time
        """
        for key, since in turned.items():
            self._note(key, since)

    def _note(self, key: Key, since: int) -> None:
        # The turn of a key that was full is now.
        if key not in self._freed:
            self._new[key] = min(self._new.get(key, since), since)

    def _first_due(self, count: int) -> list[Any]:
        page: list[Any] = []
        level = _BELOW_ALL
        while len(page) < count:
            row = self._tx.execute(_NEXT_LEVEL, {"queue": self._queue, "level": level}).first()
            if row is None:
                break
            level = row.priority
            if isinstance(row.run_at, int | float) and row.run_at <= self._tx.now:
                at = {"queue": self._queue, "level": level, "now": self._tx.now}
                page += self._tx.execute(_DUE, {**at, "count": count - len(page)}).all()
        return page

    def choose(self) -> list[Turn]:
        """Return the jobs on hold that come next, the first one first."""
        self._read()
        listed = self._listed()
        found: list[tuple[Any, Turn]] = []
        strange: list[str] = []
        for key, first in listed.items():
            room = self._bounds[key[1]] - self._used[key]
            mine = [each for each in first if each[1] in self._demand.kinds]
            strange += [each[0] for each in first if each[1] not in self._demand.kinds]
            for place, (job_id, _, priority, run_at, _) in enumerate(mine[: max(room, 0)]):
                weight = (self._used[key] + place) / self._shares[key[1]]
                turn = Turn(job_id, key, (priority, max(run_at, self._since[key])))
                found.append(((priority, weight, self._since[key], key, place), turn))
        if strange:
            # As any job of a kind that is not known here, for another pod.
            self._tx.execute(_RELEASE, {"ids": strange})
            self._tx.wake_queue(self._queue)
            self.is_cut = True
        turns = [turn for _, turn in sorted(found)]
        risky = {each[0] for first in listed.values() for each in first if each[4]}
        turns = self._without_risk(turns, risky)
        self.is_cut |= len(turns) > self._demand.limit
        # A claim that changes nothing is not repeated for the keys behind those in view.
        changes = bool(turns) or not all(map(self._has_turn, listed))
        self.is_cut |= self._are_more_keys and changes
        return turns[: self._demand.limit]

    def _without_risk(self, turns: Sequence[Turn], risky: set[str]) -> list[Turn]:
        """Leave jobs out that may kill the process, except the first, which workers begin at once.

        A job of a key that is left out stops no other: those behind may be taken.
        """
        found: list[Turn] = []
        for turn in turns:
            if turn.job_id not in risky or len(found) < len(self._demand.worker_ids):
                found.append(turn)
        return found

    def _read(self) -> None:
        most = max(_MOST_TURNS, self._demand.limit)
        rows = self._tx.execute(_TURNS, {"queue": self._queue, "most": most}).all()
        self._are_more_keys = len(rows) == most
        for row in rows:
            key = self._queue, row.limit_name, row.limit_key
            self._rows[key].append(row.id)
            self._since[key] = min(self._since.get(key, row.since), row.since)
        self._new = {key: since for key, since in self._new.items() if key not in self._rows}
        self._since |= self._new

    def _listed(self) -> dict[Key, list[Any]]:
        """Return the first jobs on hold of each key: id, kind, priority, due time, crashes.

        Two of each key are read, and more where they may be among those that are wanted. One more
        than are taken says whether others wait.
        """
        if not self._since:
            return {}
        wanted = self._demand.limit
        # With very many keys few jobs of each are looked at, and the next claim goes on.
        most = min(wanted + 1, -(-_MOST_READ // len(self._since)))
        if len(self._since) < wanted:
            found = self._first_of(self._since, most)
        else:
            found = self._first_of(self._since, min(most, 2))
            places = self._places(found, most)
            behind = {key for key, count in places.items() if len(found[key]) == 2 <= count}
            if behind and most > 2:
                count = min(most, 1 + max(places[key] for key in behind))
                found |= self._first_of(behind, count)
        self._waiting = {key: len(first) for key, first in found.items()}
        self.is_cut |= any(
            count == self._looked[key] == most <= wanted for key, count in self._waiting.items()
        )
        return found

    def _first_of(self, keys: Iterable[Key], count: int) -> dict[Key, list[Any]]:
        given = msgspec.json.encode([(name, key) for _, name, key in keys]).decode()
        values = {"queue": self._queue, "now": self._tx.now, "count": count, "keys": given}
        found: dict[Key, list[Any]] = {}
        for row in self._tx.execute(_WAITING, values):
            key = self._queue, row.name, row.key
            self._used[key], self._looked[key] = row.used, count
            found[key] = msgspec.json.decode(row.first)
        return found

    def _places(self, listed: Mapping[Key, Sequence[Any]], most: int) -> dict[Key, int]:
        """Return how many jobs of each key may be among those that are wanted.

        The key that comes last among as many as the claim wants is a bar: each of these has a job
        that may be taken, and what comes behind the last one is not.
        """
        heads = {key: first[0] for key, first in listed.items() if first}
        used, shares = self._used, {key: self._shares[key[1]] for key in heads}
        may_go = [
            (level, used[key] / shares[key], key)
            for key, (_, kind, level, _, crashes) in heads.items()
            if not crashes and kind in self._demand.kinds and used[key] < self._bounds[key[1]]
        ]
        if len(may_go) < self._demand.limit:
            return dict.fromkeys(heads, most)
        bar_level, _, bar = sorted(may_go)[self._demand.limit - 1]
        places = {}
        for key, (_, _, level, _, _) in heads.items():
            before = most if level < bar_level else 1
            if level == bar_level:
                before = used[bar] * shares[key] // shares[bar] - used[key] + 1
            places[key] = min(before, most, self._bounds[key[1]] - used[key])
        return places

    def take(self, turns: Iterable[Turn]) -> None:
        """Take jobs off hold that the claim takes."""
        self._chosen = {turn.job_id: turn.key for turn in turns}
        if self._chosen:
            self._tx.execute(_RELEASE, {"ids": list(self._chosen)})

    def finish(self) -> None:
        """Leave the turns of the next claims, and wake others that may take them."""
        if not self._used:
            self._read()
        taken: defaultdict[Key, int] = defaultdict(int)
        for key in self._chosen.values():
            taken[key] += 1
        added: dict[Key, int] = {}
        gone: list[int] = []
        for key, since in self._since.items():
            is_open = self._has_turn(key, taken[key])
            if not is_open or taken[key]:
                gone += self._rows[key]
            else:
                gone += self._rows[key][1:]
            if is_open and (taken[key] or key in self._new):
                added[key] = self._tx.now if taken[key] else since
        if gone:
            self._tx.execute(_CLOSE, {"ids": gone})
        if added:
            rows = sorted(added.items(), key=lambda each: each[1])
            self._tx.execute(_ADD, [opening_of(key, since) for key, since in rows])
        if added.keys() & self._new.keys():
            self._tx.wake_queue(self._queue)

    def _has_turn(self, key: Key, taken: int = 0) -> bool:
        """Return whether a key has room and jobs on hold once so many are taken."""
        used = self._used.get(key, 0) + taken
        return used < self._bounds[key[1]] and self._waits(key, taken)

    def _waits(self, key: Key, taken: int) -> bool:
        if key not in self._waiting:
            return True
        return self._waiting[key] > taken or self._waiting[key] >= self._looked[key]
