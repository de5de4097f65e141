"""Queue settings, pauses and cool-downs. Rate limits are in ``rate_limits``."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, exists, func, literal, select, update

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
from forge_jobs.storage.deleting import unknown_queue
from forge_jobs.storage.protocols.config import NOT_AHEAD
from forge_jobs.storage.salvage import declared_in
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.tables import limits as limit_table
from forge_jobs.storage.sql.base.tables import queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config import limit_keys, limits, rate_keys, rate_limits, strikes
from forge_jobs.storage.sql.config.queues import (
    STATE_COLUMNS,
    declare_queues,
    delete_queue,
    queue_state,
    settings_columns,
)

_ONE = select(*STATE_COLUMNS).where(queues.c.name == bindparam("queue"))
_ONE_LOCKED = _ONE.with_for_update(key_share=True)
_ALL = select(*STATE_COLUMNS)
_ALL_LIMITED = _ALL.add_columns(
    exists().where(limit_table.c.queue == queues.c.name).label("is_limited")
)
_BY_NAME = update(queues).where(queues.c.name == bindparam("queue"))
_DECLARED = select(queues.c.declared)
_NOTE_DECLARED = _BY_NAME.where(queues.c.declared.is_distinct_from(bindparam("text"))).values(
    declared=bindparam("text")
)
_ALL_DECLARED = select(queues.c.name, queues.c.declared).where(queues.c.declared.is_not(None))
_MOVE_ALLOCATION = _BY_NAME.values(allocation_version=queues.c.allocation_version + 1)


def _set_fields(tx: Tx, before: QueueState, wished: Mapping[str, Any]) -> None:
    """Write the settings that differ. A new maximum changes the allocation of the queue's slots."""
    # Write all settings of an unreadable record: the shown defaults are not the stored values.
    changed = {
        name: value
        for name, value in wished.items()
        if before.unreadable or getattr(before.settings, name) != value
    }
    if changed:
        tx.execute(_BY_NAME.values(**settings_columns(changed)), {"queue": before.name})
    if "max_workers" in changed:
        tx.execute(_MOVE_ALLOCATION, {"queue": before.name})
        tx.wake_fleet()


def _locked(tx: Tx, name: str) -> QueueState:
    return queue_state(tx.execute(_ONE_LOCKED, {"queue": name}).one(), tx.now)


def _read(tx: Tx, name: str) -> QueueState:
    return queue_state(tx.execute(_ONE, {"queue": name}).one(), tx.now)


def _ensure_queue(tx: Tx, name: str, settings: QueueSettings) -> QueueState:
    check_name("name", name)
    declare_queues(tx, [name], settings)
    before = _locked(tx, name)
    declared = msgspec.structs.asdict(settings)
    _set_fields(tx, before, {key: declared[key] for key in declared.keys() - before.overridden})
    text = msgspec.json.encode(settings).decode()
    tx.execute(_NOTE_DECLARED, {"queue": name, "text": text})
    return _read(tx, name)


def _set_queue(tx: Tx, name: str, change: QueueChange) -> QueueState:
    check_name("name", name)
    declare_queues(tx, [name])
    before = _locked(tx, name)
    wished = change.wished
    of_code = _declared(tx, name) if change.back else QueueSettings()
    back = {key: getattr(of_code, key) for key in change.back & before.overridden}
    _set_fields(tx, before, wished | back)
    overridden = sorted((before.overridden | wished.keys()) - change.back)
    tx.execute(
        _BY_NAME.values(overridden=msgspec.json.encode(overridden).decode()), {"queue": name}
    )
    tx.wake_beats()
    tx.wake_fleet()
    return _read(tx, name)


def _declared(tx: Tx, name: str) -> QueueSettings:
    stored = tx.execute(_DECLARED.where(queues.c.name == name)).scalar_one()
    return declared_in(stored) or QueueSettings()


def _change_known(tx: Tx, name: str, values: Mapping[str, Any]) -> QueueState:
    if tx.execute(_BY_NAME.values(**values), {"queue": name}).rowcount == 0:
        raise unknown_queue(name)
    tx.wake_beats()
    return _read(tx, name)


def _set_paused(tx: Tx, name: str, paused: bool) -> QueueState:
    since = func.coalesce(queues.c.paused_at, literal(tx.now, BigInteger)) if paused else None
    return _change_known(tx, name, {"paused": paused, "paused_at": since})


def queue_states(tx: Tx) -> list[QueueState]:
    """See ``ConfigStore.queues``."""
    states = [queue_state(row, tx.now) for row in tx.execute(_ALL)]
    # Sorted here: databases collate names each their own way.
    return sorted(states, key=lambda state: state.name)


def queues_and_limited(tx: Tx) -> tuple[list[QueueState], tuple[str, ...]]:
    """Return all queues, and the names of those that have limits by key, by one statement."""
    rows = tx.execute(_ALL_LIMITED).all()
    states = sorted((queue_state(row, tx.now) for row in rows), key=lambda state: state.name)
    return states, tuple(sorted(row.name for row in rows if row.is_limited))


def _settings_of_code(tx: Tx) -> dict[str, QueueSettings]:
    found = ((row.name, declared_in(row.declared)) for row in tx.execute(_ALL_DECLARED))
    return {name: settings for name, settings in found if settings is not None}


class SqlConfigStore:
    """The ``ConfigStore`` of the SQL backends."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database

    async def ensure_queue(self, name: str, settings: QueueSettings) -> QueueState:
        return await self._database.write(lambda tx: _ensure_queue(tx, name, settings))

    async def settings_of_code(self) -> dict[str, QueueSettings]:
        return await self._database.read(_settings_of_code)

    async def set_queue(self, name: str, change: QueueChange) -> QueueState:
        return await self._database.write(lambda tx: _set_queue(tx, name, change))

    async def set_paused(self, name: str, paused: bool) -> QueueState:
        return await self._database.write(lambda tx: _set_paused(tx, name, paused))

    async def clear_cooldown(self, name: str) -> QueueState:
        ended = {"cooldown_until": None, "cooldown_level": 0}
        return await self._database.write(lambda tx: _change_known(tx, name, ended))

    async def delete_queue(self, name: str) -> None:
        await self._database.write(lambda tx: delete_queue(tx, name))

    async def queues(self) -> list[QueueState]:
        return await self._database.read(queue_states)

    async def ensure_rate_limit(self, scope: str, limit: RateLimit) -> None:
        await self._database.write(lambda tx: rate_limits.ensure(tx, scope, limit))

    async def set_rate_limit(self, scope: str, limit: RateLimit) -> None:
        await self._database.write(lambda tx: rate_limits.override(tx, scope, limit))

    async def delete_rate_limit(self, scope: str) -> None:
        await self._database.write(lambda tx: rate_limits.remove(tx, scope))

    async def rate_limits(self) -> list[RateLimitState]:
        return await self._database.read(rate_limits.states)

    async def take_tokens(
        self, scope: str, count: int, within: timedelta = NOT_AHEAD
    ) -> TokenGrant:
        return await self._database.write(lambda tx: rate_limits.take(tx, scope, count, within))

    async def take_turns(
        self, scope: str, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        return await self._database.write(
            lambda tx: rate_limits.take_turns(tx, scope, counts, within)
        )

    async def take_or_turn(
        self, asks: Sequence[RateAsk], within: timedelta
    ) -> list[TokenGrant | None]:
        return await self._database.write(lambda tx: rate_keys.take_or_turn(tx, asks, within))

    async def drain_tokens(self, scope: str) -> None:
        await self._database.write(lambda tx: rate_limits.drain(tx, scope))

    async def put_strike(self, name: str, rule: StrikeRule, by: str) -> None:
        await self._database.write(lambda tx: strikes.put(tx, name, rule, by))

    async def lift_strike(self, name: str) -> None:
        await self._database.write(lambda tx: strikes.lift(tx, name))

    async def strikes(self) -> list[Strike]:
        return await self._database.read(strikes.stored)

    async def ensure_limits(
        self, queue: str, limits_of: Mapping[str, int], shares: Mapping[str, int] | None = None
    ) -> None:
        await self._database.write(lambda tx: limits.ensure(tx, queue, limits_of, shares or {}))

    async def set_limit(
        self, queue: str, name: str, at_most: int, share: int | None = None
    ) -> None:
        await self._database.write(lambda tx: limits.override(tx, queue, name, at_most, share))

    async def delete_limit(self, queue: str, name: str) -> None:
        await self._database.write(lambda tx: limits.remove(tx, queue, name))

    async def limits(self) -> list[LimitState]:
        return await self._database.read(limits.states)

    async def limit_keys(
        self, queue: str, name: str, *, after: str | None = None, limit: int = 100
    ) -> list[LimitKey]:
        return await self._database.read(lambda tx: limit_keys.keys(tx, queue, name, after, limit))

    async def limit_holders(
        self, queue: str, name: str, key: str, *, limit: int = 100
    ) -> LimitHolders:
        return await self._database.read(lambda tx: limit_keys.holders(tx, queue, name, key, limit))
