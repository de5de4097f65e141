"""Rate limits by the Generic Cell Rate Algorithm, exact in integers.

The algorithm is that of ITU-T I.371 and the ATM Forum's Traffic Management 4.0, in the form of a
"continuous-state leaky bucket": a bucket has one level that leaks at a constant rate. Each token
adds to the level, and a take that would overflow the bucket is refused.

The unit of the level is 1/``period_us`` of a token: a token adds ``period_us``, each microsecond
takes ``capacity`` away, the bucket is empty of tokens at ``capacity * period_us``. All three are
integers for any limit, so nothing is ever rounded, also when tokens come faster than the clock
ticks. The equivalent single number, the theoretical arrival time in units of 1/``capacity``
microseconds since the epoch, would not fit 64 bits.

A clock that steps back would stop the leak until the clock has caught up. A level whose time lies
in the future is therefore taken as of now: the bucket is full again one period later at most.

Turns are times: each turn follows the last one after the time in which its tokens come, and never
before they can be there. A last turn of the future is as far away as before.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from sqlalchemy import Row, bindparam, delete, select, update

from forge_jobs.clock import duration_us
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import RateLimit, RateLimitState, TokenGrant
from forge_jobs.storage.buckets import (
    NO_LIMIT,
    bucket_units,
    checked,
    furthest_us,
    salvaged_limit,
    unreadable_limit,
)
from forge_jobs.storage.salvage import Fields, number_or, truth, whole
from forge_jobs.storage.sql.base.tables import rate_limits
from forge_jobs.storage.sql.base.transaction import HotStatement, Tx

_ZERO = timedelta(0)

_limits = rate_limits.c
_NOW: Any = bindparam("now")
_BY_SCOPE = update(rate_limits).where(_limits.scope == bindparam("of"))
_FILL = HotStatement(
    _BY_SCOPE.values(level=bindparam("to"), updated_at=_NOW, last_turn_at=bindparam("last"))
)
_GIVE_TURNS = _BY_SCOPE.values(last_turn_at=bindparam("to"))
_REMOVE = delete(rate_limits).where(_limits.scope == bindparam("of"))
_ALL = select(rate_limits)
_ONE_LOCKED = HotStatement(
    _ALL.where(_limits.scope == bindparam("of")).with_for_update(key_share=True)
)


_MOST_RESERVED = 2**61
"""The most that the level may be above that of an empty bucket: both together fit 64 bits."""


class Level(Protocol):
    """A stored level, with the size of the bucket at that time."""

    capacity: int
    period_us: int
    level: int
    updated_at: int
    last_turn_at: int


def take(tx: Tx, scope: str, count: int, within: timedelta) -> TokenGrant:
    """Take ``count`` tokens or none, see ``ConfigStore.take_tokens``."""
    # The clock is read under the lock, so that of two takers the later one has the later time.
    row = _locked_for(tx, scope, [count])
    now = tx.now
    level = level_at(row, now)
    surplus = level - (row.capacity - count) * row.period_us
    wait = max(0, rounded_up(surplus, row.capacity))
    if not wait or (within and wait <= min(duration_us(within), furthest_us(size_of(row)))):
        _fill(tx, row, level + count * row.period_us)
        return TokenGrant(True, timedelta(microseconds=wait))
    if number_or(row.updated_at, now + 1) > now:
        _fill(tx, row, level)
    return TokenGrant(False, timedelta(microseconds=wait))


def take_turns(
    tx: Tx, scope: str, counts: Sequence[int], within: timedelta
) -> list[timedelta | None]:
    """Give turns, see ``ConfigStore.take_turns``."""
    row = _locked_for(tx, scope, counts)
    now, capacity, period_us = tx.now, int(row.capacity), int(row.period_us)
    level, latest = level_at(row, now), now + duration_us(within)
    if number_or(row.updated_at, now + 1) > now:
        _fill(tx, row, level)
    last = min(last_turn_at(row, now), latest)
    turns: list[timedelta | None] = []
    for count in counts:
        surplus = max(0, level - (capacity - count) * period_us)
        turn = max(
            now + rounded_up(surplus, capacity), last + rounded_up(count * period_us, capacity)
        )
        if turn > latest:
            turns.append(None)
            continue
        turns.append(timedelta(microseconds=turn - now))
        last = turn
    if last != row.last_turn_at:
        tx.execute(_GIVE_TURNS, {"of": scope, "to": last})
    return turns


def drain(tx: Tx, scope: str) -> None:
    """Leave no token in the bucket."""
    row = _locked(tx, scope)
    if row is None:
        raise _unknown(scope)
    # Reserved tokens stay reserved.
    empty = max(row.capacity * row.period_us, level_at(row, tx.now))
    _fill(tx, row, empty)


def _fill(tx: Tx, row: Row[Any], level: int) -> None:
    values = {"to": level, "now": tx.now, "last": last_turn_at(row, tx.now)}
    tx.rows(_FILL, {"of": row.scope, **values})


def ensure(tx: Tx, scope: str, limit: RateLimit) -> None:
    """Declare a bucket from code."""
    check_name("scope", scope)
    row = _insert_or_lock(tx, scope, limit, overridden=False)
    if row is not None and not row.overridden:
        _change(tx, row, limit, overridden=False)


def override(tx: Tx, scope: str, limit: RateLimit) -> None:
    """Set a bucket by hand."""
    check_name("scope", scope)
    row = _insert_or_lock(tx, scope, limit, overridden=True)
    if row is not None:
        _change(tx, row, limit, overridden=True)


def remove(tx: Tx, scope: str) -> None:
    """Remove a bucket."""
    if tx.execute(_REMOVE, {"of": scope}).rowcount == 0:
        raise _unknown(scope)


def states(tx: Tx) -> list[RateLimitState]:
    """Return every bucket, by scope."""
    found = [_state(row, tx.now) for row in tx.execute(_ALL)]
    return sorted(found, key=lambda state: state.scope)


def _state(row: Row[Any], now: int) -> RateLimitState:
    limit, problems = limit_of(row)
    available, next_in = (0, None) if limit is None else _tokens(row, limit.capacity, now)
    state = RateLimitState(
        scope=row.scope,
        limit=limit or NO_LIMIT,
        available=available,
        overridden=bool(row.overridden),
        next_in=next_in,
    )
    return salvaged_limit(state, problems)


def _tokens(row: Level, capacity: int, now: int) -> tuple[int, timedelta | None]:
    """Return how many tokens are there, and when the next one is."""
    level, period_us = level_at(row, now), row.period_us
    # Missing, or begun to come back. Those beyond the capacity are reserved.
    missing = min(rounded_up(level, period_us), capacity)
    if not missing:
        return capacity, None
    wait = rounded_up(level - (missing - 1) * period_us, capacity)
    return capacity - missing, timedelta(microseconds=wait)


def limit_of(row: Row[Any]) -> tuple[RateLimit | None, str]:
    """Return the size of a bucket, None where unreadable, and the problems of the row."""
    read = Fields(row._asdict())
    read.number("updated_at")
    read.number("last_turn_at")
    read.number("level")
    read.read("overridden", truth, False)
    capacity = read.read("capacity", whole, 0)
    limit = read.read(
        "period_us",
        lambda us: checked(RateLimit(capacity, timedelta(microseconds=whole(us)))),
        None,
    )
    return limit, read.problems


def _insert_or_lock(tx: Tx, scope: str, limit: RateLimit, *, overridden: bool) -> Row[Any] | None:
    """Return the existing row, locked, or None when this call inserted the row."""
    bucket_units(limit)  # raises when another backend could not count this limit
    period_us = duration_us(limit.period)
    row = _locked(tx, scope)
    if row is not None:
        return row
    made = tx.execute(
        tx.flavor.insert_ignore(rate_limits),
        {
            "scope": scope,
            "capacity": limit.capacity,
            "period_us": period_us,
            "level": 0,
            "updated_at": tx.now,
            "overridden": overridden,
        },
    )
    return None if made.rowcount == 1 else _locked(tx, scope)


def _change(tx: Tx, row: Row[Any], limit: RateLimit, *, overridden: bool) -> None:
    """Give the bucket another size. Missing tokens stay missing."""
    period_us = duration_us(limit.period)
    before, problems = limit_of(row)
    unchanged = (row.capacity, row.period_us, bool(row.overridden))
    if not problems and unchanged == (limit.capacity, period_us, overridden):
        return
    full = limit.capacity * period_us
    tx.execute(
        _BY_SCOPE.values(
            capacity=limit.capacity,
            period_us=period_us,
            level=level_after(row, limit, tx.now) if before else full,
            updated_at=tx.now,
            last_turn_at=0,
            overridden=overridden,
        ),
        {"of": row.scope},
    )


def size_of(row: Level) -> RateLimit:
    """Return the size that the bucket had when the level was written."""
    return RateLimit(row.capacity, timedelta(microseconds=row.period_us))


def level_at(row: Level, now: int) -> int:
    """Return the level of a row at ``now``. Above that of an empty bucket, tokens are reserved.

    Unchanged when the row was written in the future, but for reserved tokens: no bucket stays short
    of tokens for longer than the period.
    """
    full: int = row.capacity * row.period_us
    # An unreadable level counts as that of a bucket without tokens.
    is_level = type(row.level) is int and 0 <= row.level <= full + _MOST_RESERVED
    level = row.level if is_level else full
    elapsed: int = now - number_or(row.updated_at, now)
    if elapsed < 0:
        return min(level, full)
    left: int = level - elapsed * row.capacity
    return max(0, left)


def last_turn_at(row: Level, now: int) -> int:
    """Return the time of the last turn, 0 for none.

    A clock that was set back has left a row of the future. Then the line is as long as before.
    """
    ahead = max(0, number_or(row.updated_at, now) - now)
    return max(0, number_or(row.last_turn_at, 0) - ahead)


def level_after(row: Level, limit: RateLimit, now: int) -> int:
    """Return the level of a bucket that gets another size. Missing tokens stay missing.

    Reserved tokens come when they were promised: the bucket is empty until then.
    """
    level, full = level_at(row, now), row.capacity * row.period_us
    period_us = duration_us(limit.period)
    if level > full:
        ahead = min(rounded_up(level - full, row.capacity), furthest_us(limit))
        return (period_us + ahead) * limit.capacity
    # In steps in which a token and the leak of a microsecond are both whole, rounded up.
    token = bucket_units(limit).token
    steps: int = rounded_up(level * token, row.period_us)
    return min(steps, limit.capacity * token) * (period_us // token)


def rounded_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _locked_for(tx: Tx, scope: str, counts: Sequence[int]) -> Row[Any]:
    """Lock a bucket that can hold each of ``counts``, and return the row."""
    for count in counts:
        if count < 1:
            raise InvalidInput("count", f"is {count}", "give at least 1")
    row = _locked(tx, scope)
    if row is None:
        raise _unknown(scope)
    limit, problems = limit_of(row)
    if limit is None:
        raise unreadable_limit(scope, problems)
    if counts and max(counts) > row.capacity:
        raise InvalidInput(
            "count",
            f"is {max(counts)}, and {scope!r} never holds that many",
            f"give 1 to {row.capacity}",
        )
    return row


def _locked(tx: Tx, scope: str) -> Row[Any] | None:
    return next(iter(tx.rows(_ONE_LOCKED, {"of": scope})), None)


def _unknown(scope: str) -> NotFound:
    return NotFound(f"there is no rate limit {scope!r}; forge-jobs limits list names all")
