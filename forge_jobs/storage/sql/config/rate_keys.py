"""Tokens for jobs that are about to run: many at once, of rate limits and of their keys.

Each key of a rate limit has a bucket of its own. The bucket has a row only while tokens are missing
or turns are given: a bucket without a row is full. See the module ``rate_limits`` for how buckets
count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, select, tuple_, update

from forge_jobs.clock import duration_us
from forge_jobs.model.queues import RateAsk, RateLimit, TokenGrant
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import rate_limits
from forge_jobs.storage.sql.base.transaction import HotStatement, Tx
from forge_jobs.storage.sql.config.rate_limits import (
    last_turn_at,
    level_after,
    level_at,
    limit_of,
    rounded_up,
)
from forge_jobs.storage.sql.config.tables import rate_keys

_GRANTED = TokenGrant(True, timedelta(0))
_NOT_AHEAD = TokenGrant(False, timedelta(0))

_limits, _keys = rate_limits.c, rate_keys.c
_SIZES = select(rate_limits).where(one_of(_limits.scope, "scopes"))
_OWN = HotStatement(_SIZES.order_by(_limits.scope).with_for_update(key_share=True))
_PAIR = tuple_(_keys.scope, _keys.key)
_ROWS = (
    select(rate_keys)
    .where(_PAIR.in_(bindparam("pairs", expanding=True)))
    .order_by(_keys.scope, _keys.key)
    .with_for_update(key_share=True)
)
_WRITE: dict[str, Any] = {
    "level": bindparam("to"),
    "updated_at": bindparam("at"),
    "last_turn_at": bindparam("last"),
}
_WRITE_OWN = HotStatement(
    update(rate_limits).where(_limits.scope == bindparam("of")).values(**_WRITE)
)
_WRITE_KEY = (
    update(rate_keys)
    .where(_keys.scope == bindparam("of"), _keys.key == bindparam("of_key"))
    .values(
        **_WRITE,
        capacity=bindparam("size"),
        period_us=bindparam("period"),
        ends_at=bindparam("until"),
    )
)
_MOST_PAIRS = 400
"""Keys of one statement: SQLite takes a bounded number of parameters."""


@dataclass(slots=True)
class _Bucket:
    """A bucket as of this call."""

    capacity: int
    period_us: int
    level: int
    updated_at: int
    last_turn_at: int
    is_changed: bool = False

    def serve(self, ask: RateAsk, now: int, latest: int) -> TokenGrant:
        """Take a token, or give a turn that is not after ``latest``."""
        if ask.ahead:
            return self._serve_ahead(ask, now)
        surplus = self.level - (self.capacity - 1) * self.period_us
        before, last = self.last_turn_at, min(self.last_turn_at, latest)
        # A turn given before has a token as well.
        free_at = last + rounded_up(self.period_us, self.capacity)
        if surplus <= 0 and (ask.had_turn or free_at <= now or self.level <= 0):
            self.level += self.period_us
            self.is_changed = True
            return _GRANTED
        turn = max(now + rounded_up(max(surplus, 0), self.capacity), free_at)
        if ask.waits:
            self.last_turn_at = turn if turn <= latest else last
            self.is_changed = self.is_changed or self.last_turn_at != before
        return TokenGrant(False, timedelta(microseconds=min(turn, latest) - now))

    def _serve_ahead(self, ask: RateAsk, now: int) -> TokenGrant:
        """Take a token that is used within a time, where plenty are there and no turn is open.

        Nothing leaks meanwhile: the level is at least what leaks in that time. See ADR 301.
        """
        level = max(self.level, duration_us(ask.ahead) * self.capacity) + self.period_us
        is_free = self.last_turn_at + rounded_up(self.period_us, self.capacity) <= now
        if not is_free or 2 * level > self.capacity * self.period_us:
            return _NOT_AHEAD
        self.level, self.is_changed = level, True
        return _GRANTED

    @property
    def ends_at(self) -> int:
        """The time from which on the bucket is full and the last turn is over."""
        return max(self.updated_at + rounded_up(self.level, self.capacity), self.last_turn_at)


def take_or_turn(tx: Tx, asks: Sequence[RateAsk], within: timedelta) -> list[TokenGrant | None]:
    """See ``ConfigStore.take_or_turn``."""
    own = sorted({ask.scope for ask in asks if not ask.key})
    pairs = sorted({(ask.scope, ask.key) for ask in asks if ask.key})
    rows = list(tx.rows(_OWN, {"scopes": own})) if own else []
    others = sorted({scope for scope, _ in pairs} - set(own))
    rows += list(tx.execute(_SIZES, {"scopes": others})) if others else []
    limits = {row.scope: limit for row in rows if (limit := limit_of(row)[0]) is not None}
    pairs = [pair for pair in pairs if pair[0] in limits]
    stored = _locked(tx, pairs, limits)
    # The clock is read under the locks, so that of two takers the later one has the later time.
    now = tx.now
    latest = now + duration_us(within)
    buckets = {
        (row.scope, ""): _as_stored(row, now)
        for row in rows
        if row.scope in own and row.scope in limits
    }
    buckets |= {pair: _of_key(stored[pair], limits[pair[0]], now) for pair in pairs}
    answers: list[TokenGrant | None] = []
    for ask in asks:
        bucket = buckets.get((ask.scope, ask.key))
        answers.append(None if bucket is None else bucket.serve(ask, now, latest))
    changed = {pair: bucket for pair, bucket in buckets.items() if bucket.is_changed}
    _store(tx, changed)
    return answers


def _locked(
    tx: Tx, pairs: Sequence[tuple[str, str]], limits: Mapping[str, RateLimit]
) -> dict[tuple[str, str], Any]:
    """Lock the rows of these buckets, and return them. A bucket that has none gets one."""
    stored: dict[tuple[str, str], Any] = {}
    missing = list(pairs)
    while missing:
        for first in range(0, len(missing), _MOST_PAIRS):
            rows = tx.execute(_ROWS, {"pairs": missing[first : first + _MOST_PAIRS]})
            stored |= {(row.scope, row.key): row for row in rows}
        # Another call may have removed a row, or may insert the same one and is waited for.
        missing = [pair for pair in missing if pair not in stored]
        if missing:
            full = [_full(pair, limits[pair[0]]) for pair in missing]
            tx.execute(tx.flavor.insert_ignore(rate_keys), full)
    return stored


def _full(pair: tuple[str, str], limit: RateLimit) -> dict[str, object]:
    """Return a row of a full bucket. Full since ever, because the clock is read under the locks."""
    scope, key = pair
    size = {"capacity": limit.capacity, "period_us": duration_us(limit.period)}
    ages = dict.fromkeys(("level", "updated_at", "last_turn_at", "ends_at"), 0)
    return {"scope": scope, "key": key, **size, **ages}


def _as_stored(row: Any, now: int) -> _Bucket:
    last = last_turn_at(row, now)
    # A level that was written in the future counts from now on.
    is_ahead = number_or(row.updated_at, now + 1) > now
    return _Bucket(row.capacity, row.period_us, level_at(row, now), now, last, is_ahead)


def _of_key(row: Any, limit: RateLimit, now: int) -> _Bucket:
    """Return the bucket of a key in the size of the rate limit."""
    period_us = duration_us(limit.period)
    size = (row.capacity, row.period_us)
    if not all(type(number) is int and number > 0 for number in size):
        # An unreadable bucket counts as one without tokens.
        return _Bucket(limit.capacity, period_us, limit.capacity * period_us, now, 0, True)
    if size != (limit.capacity, period_us):
        return _Bucket(limit.capacity, period_us, level_after(row, limit, now), now, 0, True)
    return _as_stored(row, now)


def _store(tx: Tx, changed: Mapping[tuple[str, str], _Bucket]) -> None:
    own = [(pair, bucket) for pair, bucket in changed.items() if not pair[1]]
    keys = [(pair, bucket) for pair, bucket in changed.items() if pair[1]]
    for written in _written(own):
        tx.rows(_WRITE_OWN, written)
    if keys:
        tx.execute(
            _WRITE_KEY,
            [
                {
                    **written,
                    "of_key": pair[1],
                    "size": bucket.capacity,
                    "period": bucket.period_us,
                    "until": bucket.ends_at,
                }
                for written, (pair, bucket) in zip(_written(keys), keys, strict=True)
            ],
        )


def _written(buckets: Iterable[tuple[tuple[str, str], _Bucket]]) -> Iterable[dict[str, object]]:
    for (scope, _), bucket in buckets:
        yield {
            "of": scope,
            "to": bucket.level,
            "at": bucket.updated_at,
            "last": bucket.last_turn_at,
        }
