"""Queue settings, pauses and cool-downs. The rate limits are next door."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from forge_jobs.model.names import check_name
from forge_jobs.model.queues import (
    LimitHolders,
    LimitKey,
    LimitState,
    QueueChange,
    QueueSettings,
    QueueState,
    RateAsk,
    RateLimit,
    RateLimitState,
    TokenGrant,
)
from forge_jobs.model.strikes import Strike, StrikeRule
from forge_jobs.storage.deleting import in_use, unknown_queue
from forge_jobs.storage.protocols.config import NOT_AHEAD
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, note_queues
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.config import limit_keys, limits, rate_keys, rate_limits, strikes
from forge_jobs.storage.redis.config.queues import DEFAULT_FIELDS, QueueRecord, setting_fields
from forge_jobs.storage.salvage import declared_in

_MaybeRecord = list[QueueRecord]
"""Return one name, or none where there is no such queue."""


async def _declare(
    database: Database,
    name: str,
    settings: Mapping[str, Any],
    *,
    declared: str = "",
    back: Collection[str] = (),
) -> QueueState:
    """Declare a queue, or edit one: nothing is ``declared`` then.

    :param back: names of settings that are the code's again
    """
    check_name("name", name)
    await note_queues(database, [name])
    base = database.keys.queue(name)
    while True:
        seen = await database.run_one("settings_of_code", base, [], str) if back else ""
        of_code = declared_in(seen) or QueueSettings()
        request = request_of(
            "declare_queue",
            defaults=DEFAULT_FIELDS,
            settings=setting_fields(settings),
            by_operator=not declared,
            declared=declared,
            back=setting_fields({key: getattr(of_code, key) for key in back}),
            seen=seen,
        )
        # A pod declares many, and must not wait long for each that is silent.
        found, silent = await database.run_some("declare_queue", {base: request}, _MaybeRecord)
        if silent:
            raise silent[base]
        if found[base]:
            return found[base][0].state(name)


async def _change_known(database: Database, script: str, name: str, request: object) -> QueueState:
    # An empty hash tag is none: keys of such a queue would be on any servers of a cluster.
    queue = database.keys.queue(name)
    found = await database.run_one(script, queue, request, _MaybeRecord) if name else []
    if not found:
        raise unknown_queue(name)
    return found[0].state(name)


async def queue_states(database: Database) -> list[QueueState]:
    """See ``ConfigStore.queues``."""
    return (await queues_and_limited(database))[0]


async def queues_and_limited(database: Database) -> tuple[list[QueueState], tuple[str, ...]]:
    """Return all queues, and the names of those that have limits by key, by one step for each."""
    found = await in_all_queues(database, "queue_states", [], _MaybeRecord)
    records = [(name, record) for name, one in sorted(found.items()) for record in one]
    return (
        [record.state(name) for name, record in records],
        tuple(name for name, record in records if record.is_limited),
    )


class RedisConfigStore:
    """The ``ConfigStore`` on Redis."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database

    async def ensure_queue(self, name: str, settings: QueueSettings) -> QueueState:
        text = msgspec.json.encode(settings).decode()
        fields = msgspec.structs.asdict(settings)
        return await _declare(self._database, name, fields, declared=text)

    async def settings_of_code(self) -> dict[str, QueueSettings]:
        stored = await in_all_queues(self._database, "settings_of_code", [], str)
        found = ((name, declared_in(text)) for name, text in sorted(stored.items()))
        return {name: settings for name, settings in found if settings is not None}

    async def set_queue(self, name: str, change: QueueChange) -> QueueState:
        return await _declare(self._database, name, change.wished, back=change.back)

    async def set_paused(self, name: str, paused: bool) -> QueueState:
        return await _change_known(self._database, "pause_queue", name, [paused])

    async def clear_cooldown(self, name: str) -> QueueState:
        return await _change_known(self._database, "clear_cooldown", name, [])

    async def delete_queue(self, name: str) -> None:
        if not name:
            raise unknown_queue(name)
        base = self._database.keys.queue(name)
        there, jobs, pods = await self._database.run_one(
            "delete_queue", base, [], tuple[bool, int, int]
        )
        if not there:
            raise unknown_queue(name)
        if jobs or pods:
            raise in_use(name, jobs, pods)

    async def queues(self) -> list[QueueState]:
        return await queue_states(self._database)

    async def ensure_rate_limit(self, scope: str, limit: RateLimit) -> None:
        await rate_limits.declare(self._database, scope, limit, by_operator=False)

    async def set_rate_limit(self, scope: str, limit: RateLimit) -> None:
        await rate_limits.declare(self._database, scope, limit, by_operator=True)

    async def delete_rate_limit(self, scope: str) -> None:
        await rate_limits.remove(self._database, scope)

    async def rate_limits(self) -> list[RateLimitState]:
        return await rate_limits.states(self._database)

    async def take_tokens(
        self, scope: str, count: int, within: timedelta = NOT_AHEAD
    ) -> TokenGrant:
        return await rate_limits.take(self._database, scope, count, within)

    async def take_turns(
        self, scope: str, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        return await rate_limits.take_turns(self._database, scope, counts, within)

    async def take_or_turn(
        self, asks: Sequence[RateAsk], within: timedelta
    ) -> list[TokenGrant | None]:
        return await rate_keys.take_or_turn(self._database, asks, within)

    async def drain_tokens(self, scope: str) -> None:
        await rate_limits.drain(self._database, scope)

    async def put_strike(self, name: str, rule: StrikeRule, by: str) -> None:
        await strikes.put(self._database, name, rule, by)

    async def lift_strike(self, name: str) -> None:
        await strikes.lift(self._database, name)

    async def strikes(self) -> list[Strike]:
        return await strikes.stored(self._database)

    async def ensure_limits(
        self, queue: str, limits_of: Mapping[str, int], shares: Mapping[str, int] | None = None
    ) -> None:
        await limits.declare(self._database, queue, limits_of, shares or {}, by_operator=False)

    async def set_limit(
        self, queue: str, name: str, at_most: int, share: int | None = None
    ) -> None:
        shares = {} if share is None else {name: share}
        await limits.declare(self._database, queue, {name: at_most}, shares, by_operator=True)

    async def delete_limit(self, queue: str, name: str) -> None:
        await limits.remove(self._database, queue, name)

    async def limits(self) -> list[LimitState]:
        return await limits.states(self._database)

    async def limit_keys(
        self, queue: str, name: str, *, after: str | None = None, limit: int = 100
    ) -> list[LimitKey]:
        return await limit_keys.keys(self._database, queue, name, after, limit)

    async def limit_holders(
        self, queue: str, name: str, key: str, *, limit: int = 100
    ) -> LimitHolders:
        return await limit_keys.holders(self._database, queue, name, key, limit)
