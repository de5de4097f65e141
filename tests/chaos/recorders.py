"""Recorders of limits and of sequences: they count in the store, and know nothing of the code under
test.

Where a store has triggers, each commit of a claim is counted, and none can pass unseen. Beside
that, and on Redis alone, states of the whole queue are read over and over, each as of one instant.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import anyio
import asyncpg
import redis

from forge_jobs.storage.redis.keys import Keys
from tests.chaos.pace import WORK, pause

_EVERY = 0.03
_LONGEST_LOOK = 10.0
"""Seconds. A store that says nothing for so long is away."""
"""Seconds between two looks."""


@dataclass
class Told:
    """Counts of a recorder.

    :ivar claims: how many claims of jobs with limits were counted as they were committed
    :ivar looks: how many states were read
    :ivar passed: keys with more jobs in progress than may be
    :ivar idle: keys with room and jobs on hold, and nothing that would make these ready
    :ivar full: how often a key was seen with as many jobs in progress as may be
    :ivar members: how many claims of jobs of sequences were counted. On Redis, of how many jobs in
        progress
    :ivar crossed: claims of jobs of a sequence beside or before an earlier one
    """

    claims: int = 0
    looks: int = 0
    passed: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    full: int = 0
    members: int = 0
    crossed: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """No limit was passed, no wake-up was lost, and nothing was out of sequence."""
        return not (self.passed or self.idle or self.crossed)


class Crossing(NamedTuple):
    """A job of a sequence in progress, and another of the sequence that had yet to succeed.

    :ivar other: in progress too, or with a lower id
    """

    job_id: str
    other: str
    status: str


class KeyState(NamedTuple):
    """A key at one instant: its jobs in progress, ready and on hold.

    :ivar is_opened: a note stands that the next claim is to look at the key
    """

    key: str
    at_most: int
    used: int
    ready: int
    parked: int
    is_opened: bool


class Recorder:
    """Watches nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.told = Told()

    async def begin(self) -> None:
        """Prepare the store, before any pod starts."""

    async def keep_looking(self) -> None:
        """Read states until cancelled."""

    async def end(self, late: Collection[str]) -> Told:
        """Return the counts.

        :param late: jobs that others of their sequence may pass
        """
        return self.told

    def _judge_crossings(self, crossings: Iterable[Crossing], late: Collection[str]) -> None:
        self.told.crossed += [
            f"{each}"
            for each in crossings
            if each.status == "in_progress" or each.other not in late
        ]


class _Looking(Recorder, ABC):
    """Reads states of the queue."""

    async def keep_looking(self) -> None:
        """Read states until cancelled. While the store is away there are none.

        No look is cut short: the driver of PostgreSQL reports a connection that a cancellation has
        left half open as an error of nobody's.
        """
        away = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, redis.RedisError)
        while True:
            with suppress(*away), anyio.move_on_after(_LONGEST_LOOK, shield=True):
                self._judge(await self._states())
            await pause(_EVERY)

    @abstractmethod
    async def _states(self) -> Iterable[KeyState]:
        """Read how each key stands."""

    def _judge(self, states: Iterable[KeyState]) -> None:
        self.told.looks += 1
        for state in states:
            if state.used > state.at_most:
                self.told.passed.append(f"{state}")
            self.told.full += state.used == state.at_most
            coming = state.used + state.ready
            if state.parked and coming < state.at_most and not state.is_opened:
                self.told.idle.append(f"{state}")


_STATES = """
    SELECT j.limit_name || ' ' || j.limit_key, l.at_most,
        sum(CASE WHEN j.status = 'in_progress' THEN 1 ELSE 0 END),
        sum(CASE WHEN j.status <> 'in_progress' AND j.hold IS NULL THEN 1 ELSE 0 END),
        sum(CASE WHEN j.hold = 'limit' THEN 1 ELSE 0 END),
        max(CASE WHEN EXISTS (
            SELECT 1 FROM forge_openings AS o
            WHERE o.queue = j.queue AND o.limit_name = j.limit_name AND o.limit_key = j.limit_key
        ) THEN 1 ELSE 0 END)
    FROM forge_jobs AS j JOIN forge_limits AS l ON l.queue = j.queue AND l.name = j.limit_name
    WHERE j.status IN ('pending', 'failed', 'in_progress')
    GROUP BY j.limit_name, j.limit_key, l.at_most
"""

_USED = """
    SELECT count(*) FROM forge_jobs
    WHERE status = 'in_progress' AND queue = NEW.queue
        AND limit_name = NEW.limit_name AND limit_key = NEW.limit_key
"""
_CLAIMED = "NEW.status = 'in_progress' AND OLD.status <> 'in_progress'"
_TABLE = "CREATE TABLE recorded (limited TEXT, used BIGINT, at_most BIGINT)"
_CROSSINGS = "CREATE TABLE crossings (job_id TEXT, other TEXT, status TEXT)"
_LINES = "CREATE INDEX recorded_lines ON forge_members (line)"
_CROSSED = """
    INSERT INTO crossings
    SELECT NEW.id, other.id, other.status
    FROM forge_members AS mine
    JOIN forge_members AS others ON others.line = mine.line AND others.job_id <> mine.job_id
    JOIN forge_jobs AS other ON other.id = others.job_id
    WHERE mine.job_id = NEW.id AND (
        other.status = 'in_progress' OR (other.status <> 'done' AND other.id < NEW.id)
    )
"""
_MEMBER = """
    INSERT INTO crossings SELECT job_id, NULL, NULL FROM forge_members WHERE job_id = NEW.id
"""
_FOUND = "SELECT job_id, other, status FROM crossings WHERE other IS NOT NULL"
_MEMBERS = "SELECT count(*) FROM crossings WHERE other IS NULL"
_PASSED = "SELECT limited, used, at_most FROM recorded WHERE used > at_most"


class SqliteRecorder(_Looking):
    """A trigger that counts with each claim, under the file's write lock."""

    async def begin(self) -> None:
        """Make the trigger."""
        with self._connected() as file:
            for statement in (_TABLE, _CROSSINGS, _LINES):
                file.execute(statement)
            file.execute(
                f"""
                CREATE TRIGGER record_crossings AFTER UPDATE OF status ON forge_jobs
                WHEN {_CLAIMED} BEGIN {_CROSSED}; {_MEMBER}; END
                """
            )
            file.execute(
                f"""
                CREATE TRIGGER record_claims AFTER UPDATE OF status ON forge_jobs
                WHEN {_CLAIMED} AND NEW.limit_name IS NOT NULL
                BEGIN
                    INSERT INTO recorded
                    SELECT NEW.limit_name || ' ' || NEW.limit_key, ({_USED}), at_most
                    FROM forge_limits WHERE queue = NEW.queue AND name = NEW.limit_name;
                END
                """
            )

    async def end(self, late: Collection[str]) -> Told:
        """Read the rows of the triggers."""
        with self._connected() as file:
            self.told.claims = file.execute("SELECT count(*) FROM recorded").fetchone()[0]
            self.told.passed += [str(row) for row in file.execute(_PASSED)]
            self.told.members = file.execute(_MEMBERS).fetchone()[0]
            self._judge_crossings([Crossing(*row) for row in file.execute(_FOUND)], late)
        return self.told

    async def _states(self) -> Iterable[KeyState]:
        return await anyio.to_thread.run_sync(self._read)

    def _read(self) -> list[KeyState]:
        with self._connected() as file:
            return [KeyState(*row) for row in file.execute(_STATES)]

    def _connected(self) -> "closing[sqlite3.Connection]":
        path = self._url.removeprefix("sqlite:///")
        return closing(sqlite3.connect(path, isolation_level=None, timeout=60))


_LOCK = 20_260_101
_FUNCTION = f"""
    CREATE FUNCTION record_claim() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- Held until the commit can be seen: the next claim counts this one.
        PERFORM pg_advisory_xact_lock({_LOCK});
        INSERT INTO recorded
        SELECT NEW.limit_name || ' ' || NEW.limit_key, ({_USED}), at_most
        FROM forge_limits WHERE queue = NEW.queue AND name = NEW.limit_name;
        {_CROSSED};
        {_MEMBER};
        RETURN NULL;
    END $$
"""
_DEFERRED = f"""
    CREATE CONSTRAINT TRIGGER record_claims AFTER UPDATE OF status ON forge_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ({_CLAIMED} AND (NEW.limit_name IS NOT NULL OR NEW.kind LIKE 'lined.%'))
    EXECUTE FUNCTION record_claim()
"""


class PostgresRecorder(_Looking):
    """A trigger that runs at each commit of a claim, one commit after the other."""

    async def begin(self) -> None:
        """Make the trigger."""
        for statement in (_TABLE, _CROSSINGS, _LINES, _FUNCTION, _DEFERRED):
            await self._run(statement)

    async def end(self, late: Collection[str]) -> Told:
        """Read the rows of the trigger."""
        self.told.claims = (await self._run("SELECT count(*) FROM recorded"))[0][0]
        self.told.passed += [str(tuple(row)) for row in await self._run(_PASSED)]
        self.told.members = (await self._run(_MEMBERS))[0][0]
        self._judge_crossings([Crossing(*row) for row in await self._run(_FOUND)], late)
        return self.told

    async def _states(self) -> Iterable[KeyState]:
        return [KeyState(*row) for row in await self._run(_STATES)]

    async def _run(self, statement: str) -> Any:
        connection = await asyncpg.connect(self._url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()


class RedisRecorder(_Looking):
    """A script that counts the jobs themselves, not the sets that the limits are kept by."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._crossings: set[Crossing] = set()

    async def end(self, late: Collection[str]) -> Told:
        """Judge what was seen."""
        self._judge_crossings(sorted(self._crossings), late)
        return self.told

    _SCRIPT: ClassVar[str] = """
        local base, found = KEYS[1], {}
        local function add(permit, field, number)
            local state = found[permit] or { used = 0, ready = 0, parked = 0 }
            found[permit] = state
            state[field] = state[field] + number
        end
        local claimed, members, crossings = {}, 0, {}
        for _, id in ipairs(redis.call('ZRANGE', base .. ':claimed', 0, -1)) do
            local job = redis.call('HMGET', base .. ':j:' .. id, 'permit', 'sequence')
            if job[1] then
                add(job[1], 'used', 1)
            end
            if job[2] then
                claimed[job[2]] = claimed[job[2]] or {}
                table.insert(claimed[job[2]], id)
                members = members + 1
            end
        end
        local function cross(other, status)
            local sequence = redis.call('HGET', base .. ':j:' .. other, 'sequence')
            for _, id in ipairs(claimed[sequence] or {}) do
                if id ~= other and (status == 'in_progress' or other < id) then
                    crossings[#crossings + 1] = { id, other, status }
                end
            end
        end
        for _, ids in pairs(claimed) do
            for _, id in ipairs(ids) do
                cross(id, 'in_progress')
            end
        end
        for _, status in ipairs({ 'blocked', 'pending', 'failed', 'dead', 'cancelled' }) do
            for _, id in ipairs(redis.call('ZRANGE', base .. ':s:' .. status, 0, -1)) do
                cross(id, status)
            end
        end
        for _, status in ipairs({ 'pending', 'failed' }) do
            for _, id in ipairs(redis.call('ZRANGE', base .. ':s:' .. status, 0, -1)) do
                local job = redis.call('HMGET', base .. ':j:' .. id, 'permit', 'hold')
                if job[1] then
                    add(job[1], job[2] == 'limit' and 'parked' or 'ready', 1)
                end
            end
        end
        local told = {}
        for permit, state in pairs(found) do
            local name = string.match(permit, '^[^\\n]*')
            local at_most = redis.call('HGET', base .. ':at_most', name) or '1000000'
            local number = tonumber(string.match(at_most, '^%d+'))
            told[#told + 1] = { permit, number, state.used, state.ready, state.parked }
        end
        return { members, crossings, told }
    """

    async def _states(self) -> Iterable[KeyState]:
        return await anyio.to_thread.run_sync(self._read)

    def _read(self) -> list[KeyState]:
        with redis.Redis.from_url(self._url, protocol=2) as client:
            found: Any = client.eval(self._SCRIPT, 1, Keys("forge").queue(WORK))
        members, crossings, told = found
        self.told.members += members
        self._crossings |= {Crossing(*(part.decode() for part in each)) for each in crossings}
        return [
            KeyState(key.decode(), at_most, used, ready, parked, False)
            for key, at_most, used, ready, parked in told
        ]
