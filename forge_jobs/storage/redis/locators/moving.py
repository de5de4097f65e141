"""Moves the locators of a cluster from the old hashes to those over which they are spread.

One old hash after the other. The first step ends all writes there. Then all locators are copied,
and taken away a minute later, so that a failover which loses copies loses no locator. Each step is
short, and may be done by several pods at once, or again: a new leader goes on where the last one
has ended. See ``places.py`` for who looks where meanwhile.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from forge_jobs.errors import Unavailable
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.places import State
from forge_jobs.storage.redis.base.schema import works_from
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.driver.errors import WrongType
from forge_jobs.storage.redis.keys import OLD_HASHES

logger = reporter(__name__)

LAYOUT = 2
"""The layout that must be noted before anything is moved."""

_STOOD_US = 60_000_000
_AT_ONCE = 500
_STEPS = 100
"""How many steps one pass takes, each of some hundred locators."""

_WAITING = 4
"""So many hashes may wait for their minute: what is there twice costs memory."""


class Stage(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``moves.lua`` about an old hash.

    :param text: what stands under the key
    :param left: how many locators are still to be moved
    :param now: the time of the server, microseconds
    """

    text: str
    left: int
    now: int

    @property
    def works_from(self) -> int:
        """The version from which on programs work with the store, as the key says. 0: unknown."""
        _, _, number = self.text.partition("all from=")
        return int(number or 0)

    @property
    def since(self) -> int | None:
        """When all locators of the hash had been copied. None: they have not been."""
        word = self.text.removeprefix("moving since ")
        return int(word) if word != self.text else None


async def look(db: Database) -> dict[int, Stage]:
    """Look how far the old hashes are, those of silent servers excepted, and note the stages."""
    bases = db.places.old_bases()
    answers, _ = await db.run_some("moves", dict.fromkeys(bases, True), Stage)
    stages = {bases[base]: stage for base, stage in answers.items()}
    db.places.note({number: stage.text for number, stage in stages.items()})
    return stages


async def look_again(db: Database, seen: tuple[State, ...]) -> None:
    """Look, because a step has found locators moved.

    :param seen: how far they were when the step was begun
    :raises WrongType: they are no further, so that something else is wrong
    """
    if db.places.states == seen:
        await look(db)
    if db.places.states == seen:
        raise WrongType("a key of locators holds something of another type than it must")


async def refresh(db: Database) -> None:
    """Look now and then while locators are on the way."""
    if db.places.is_under_way and db.places.is_due(db.elapsed()):
        await look(db)


async def begin(db: Database) -> None:
    """Begin with every old hash at once: nothing is in any, as the store is new."""
    bases = db.places.old_bases()
    texts, _ = await db.run_some("move_begin", dict.fromkeys(bases, True), str)
    db.places.note({bases[base]: text for base, text in texts.items()})
    await _end(db)


async def _end(db: Database) -> None:
    """Note under each key that nothing is left in any, so that one key that answers says it all.

    Which programs work with the store is said there too, on all servers. The layout is on one.
    """
    if db.places.are_spread:
        try:
            request = request_of("move_end", works_from=await works_from(db), is_end=True)
        except Unavailable:
            return  # The next pass says it.
        await db.run_some("move_end", dict.fromkeys(db.places.old_bases(), request), bool)
        db.places.is_said = True


@dataclass(frozen=True)
class _Round:
    """How far a look through one old hash has come.

    :param were_there: all that was seen had been copied before
    """

    cursor: int = 0
    were_there: bool = True


class Mover:
    """Goes on with the move, and remembers how far the move has come."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._rounds: dict[int, _Round] = {}
        self._must_stand = _STOOD_US if db.is_cluster else 0

    async def go_on(self) -> int:
        """Take some steps. Return how many locators were looked at.

        The move begins only in a cluster whose layout is noted: then no program that does not know
        the move is started any more. A move that has begun goes on anywhere.
        """
        db = self._db
        if db.places.is_said or not (any(db.places.states) or await self._may_begin()):
            return 0
        stages = await look(db)
        before = db.places.moved
        looked_at = 0
        for _ in range(_STEPS):
            number = self._next(stages)
            if number is None:
                break
            try:
                text, seen = await self._step(number, stages[number])
            except Unavailable:
                # One of the servers is silent. The others go on.
                del stages[number]
                continue
            looked_at += seen
            stages[number] = msgspec.structs.replace(stages[number], text=text)
            db.places.note({number: text})
        if db.places.moved > before:
            logger.info(
                "the index of job ids moves to all servers: %d of %d hashes are moved",
                db.places.moved,
                OLD_HASHES,
            )
        await _end(db)
        return looked_at

    async def _may_begin(self) -> bool:
        db = self._db
        if not db.is_cluster:
            return False
        [noted] = await db.commands([("HGET", f"{db.keys.fleet}:schema", LAYOUT)], some=True)
        return noted is not None and not isinstance(noted, Unavailable)

    def _next(self, stages: Mapping[int, Stage]) -> int | None:
        """Return the hash to go on with. Those of which nothing is known are left out."""
        waiting = 0
        fresh: int | None = None
        for number, stage in sorted(stages.items()):
            if not stage.text:
                fresh = number if fresh is None else fresh
            elif self._must_stand and stage.since and stage.since + self._must_stand > stage.now:
                waiting += 1
            elif stage.text.startswith("moving"):
                return number
        return fresh if waiting < _WAITING else None

    async def _step(self, number: int, stage: Stage) -> tuple[str, int]:
        """Return the text under the key of the hash then, and how many locators were looked at."""
        db = self._db
        base = db.keys.old_locators(number)
        if not stage.text:
            return await db.run_one("move_begin", base, True, str), 0
        state = self._rounds.get(number, _Round())
        command = ("HSCAN", f"{base}:from", state.cursor, "COUNT", _AT_ONCE)
        [(cursor, flat)] = await db.commands([command])
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        there = await self._copy(pairs)
        state = _Round(int(cursor), state.were_there and len(there) == len(pairs))
        is_round = not state.cursor
        self._rounds[number] = _Round() if is_round else state
        request = request_of(
            "move_on",
            gone=there,
            is_round=is_round,
            were_there=state.were_there,
            must_stand=self._must_stand,
        )
        return await db.run_one("move_on", base, request, str), len(pairs)

    async def _copy(self, pairs: list[tuple[bytes, bytes]]) -> list[str]:
        """Copy locators to their final hashes. Return the ids of those that were there before."""
        keys = self._db.keys
        requests: defaultdict[str, list[object]] = defaultdict(list)
        for raw_id, locator in pairs:
            job_id = raw_id.decode()
            base = keys.locators(job_id).removesuffix(":ids")
            requests[base].append(item_of("move_in", "pair", id=job_id, locator=locator.decode()))
        answers = await self._db.run("move_in", requests, list[str])
        return [job_id for there in answers.values() for job_id in there]
