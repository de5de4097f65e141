"""The load of limits by key. See ``permits.lua``."""

from collections.abc import Sequence

import msgspec

from forge_jobs.clock import from_us
from forge_jobs.model.looks import MOST_FULL_KEYS, MOST_PARKED, FullKey, LimitLoad
from forge_jobs.model.queues import MOST_KEY_JOBS
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_some_queues
from forge_jobs.storage.redis.base.scripts import request_of


class _Key(msgspec.Struct, frozen=True, array_like=True):
    """A full key in the answer of ``limit_loads.lua``."""

    key: str
    running: int
    waiting: int
    due_at: int
    claimed_at: int
    kinds: list[str]


class _Load(msgspec.Struct, frozen=True, array_like=True):
    """A limit in the answer of ``limit_loads.lua``. -1 for an oldest job that is not there, and for
    no share.
    """

    name: str
    at_most: int
    share: int
    running: int
    waiting: int
    oldest: int
    full: int
    keys: list[_Key]


async def loads(database: Database, queues: Sequence[str]) -> tuple[LimitLoad, ...]:
    """Return the limits of the queues that answer, by queue and name."""
    request = request_of("limit_loads", most=MOST_FULL_KEYS)
    found = await in_some_queues(database, "limit_loads", queues, request, list[_Load])
    return tuple(
        _load(queue, each)
        for queue, limits in sorted(found.items())
        for each in sorted(limits, key=lambda each: each.name)
    )


def _load(queue: str, each: _Load) -> LimitLoad:
    return LimitLoad(
        queue=queue,
        name=each.name,
        at_most=each.at_most,
        share=None if each.share < 0 else each.share,
        running=each.running,
        waiting=min(each.waiting, MOST_PARKED),
        oldest_due_at=None if each.oldest < 0 else from_us(each.oldest),
        full=each.full,
        full_keys=tuple(
            FullKey(
                key=key.key,
                running=key.running,
                waiting=min(key.waiting, MOST_KEY_JOBS),
                due_at=from_us(key.due_at),
                claimed_at=from_us(key.claimed_at),
                kinds=tuple(sorted(key.kinds)),
            )
            for key in each.keys
        ),
    )
