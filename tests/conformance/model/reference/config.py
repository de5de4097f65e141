"""Settings of queues, pauses, cool-downs and rate limits."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import gcd
from typing import Any

from msgspec.structs import asdict, replace

from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.queues import (
    LimitState,
    QueueChange,
    QueueSettings,
    QueueState,
    RateAsk,
    RateLimit,
    RateLimitState,
    TokenGrant,
)
from tests.conformance.model.reference.state import ZERO, ModelBucket, ModelQueue, World

_MICROSECOND = timedelta(microseconds=1)
_FURTHEST = timedelta(minutes=15)
"""How far ahead tokens of the limits of programs are reserved."""


class ReferenceConfig:
    """``ConfigStore``."""

    def __init__(self, world: World) -> None:
        self._world = world

    # -- queues

    def ensure_queue(self, name: str, settings: QueueSettings) -> QueueState:
        queue = self._world.declare(name)
        declared = asdict(settings)
        self._set(queue, {key: declared[key] for key in declared.keys() - queue.overridden})
        queue.declared = settings
        return self._world.queue_state(queue)

    def settings_of_code(self) -> dict[str, QueueSettings]:
        queues = sorted(self._world.queues.items())
        return {name: queue.declared for name, queue in queues if queue.declared is not None}

    def set_queue(self, name: str, change: QueueChange) -> QueueState:
        queue = self._world.declare(name)
        of_code = asdict(queue.declared or QueueSettings())
        wished = change.wished
        self._set(queue, wished | {key: of_code[key] for key in change.back & queue.overridden})
        queue.overridden |= wished.keys()
        queue.overridden -= change.back
        return self._world.queue_state(queue)

    def _set(self, queue: ModelQueue, wished: dict[str, Any]) -> None:
        before, queue.settings = queue.settings, replace(queue.settings, **wished)
        if before.max_workers != queue.settings.max_workers:
            self._world.move_versions(queue.name)

    def _known(self, name: str) -> ModelQueue:
        if name not in self._world.queues:
            raise NotFound(f"there is no queue {name!r}")
        return self._world.queues[name]

    def set_paused(self, name: str, paused: bool) -> QueueState:
        queue = self._known(name)
        queue.paused_since = (queue.paused_since or self._world.now) if paused else None
        return self._world.queue_state(queue)

    def clear_cooldown(self, name: str) -> QueueState:
        queue = self._known(name)
        queue.cooldown_until, queue.cooldown_level = None, 0
        return self._world.queue_state(queue)

    def delete_queue(self, name: str) -> None:
        queue = self._known(name)
        declared = any(name in pod.slots for pod in self._world.live_pods())
        if declared or self._world.of_queue(name):
            raise Conflict(f"the queue {name!r} is in use")
        self._world.forget(queue)

    def queues(self) -> list[QueueState]:
        return [self._world.queue_state(q) for _, q in sorted(self._world.queues.items())]

    # -- limits by key

    def ensure_limits(
        self, queue: str, limits: Mapping[str, int], shares: Mapping[str, int] | None = None
    ) -> None:
        for name, at_most in limits.items():
            before = self._world.limits.get((queue, name))
            if before is None or not before.overridden:
                self._set_limit(queue, name, at_most, (shares or {}).get(name), by_hand=False)

    def set_limit(self, queue: str, name: str, at_most: int, share: int | None = None) -> None:
        self._set_limit(queue, name, at_most, share, by_hand=True)

    def _set_limit(
        self, queue: str, name: str, at_most: int, share: int | None, *, by_hand: bool
    ) -> None:
        self._world.declare(queue)
        self._world.limits[queue, name] = LimitState(
            queue=queue, name=name, at_most=at_most, share=share, overridden=by_hand
        )

    def delete_limit(self, queue: str, name: str) -> None:
        if self._world.limits.pop((queue, name), None) is None:
            raise NotFound(f"there is no limit {name!r}")

    def limits(self) -> list[LimitState]:
        return [state for _, state in sorted(self._world.limits.items())]

    # -- rate limits: ``capacity`` shares leak out each microsecond, ``period`` of them are a token

    def ensure_rate_limit(self, scope: str, limit: RateLimit) -> None:
        bucket = self._world.buckets.get(scope)
        if bucket is None or not bucket.overridden:
            self._resize(scope, limit, overridden=False)

    def set_rate_limit(self, scope: str, limit: RateLimit) -> None:
        self._resize(scope, limit, overridden=True)

    def _resize(self, scope: str, limit: RateLimit, *, overridden: bool) -> None:
        taken = 0
        if scope in self._world.buckets:
            bucket = self._leaked(scope)
            if (bucket.limit, bucket.overridden) == (limit, overridden):
                return
            taken = _taken_after(bucket, limit)
        self._world.buckets[scope] = ModelBucket(limit, taken, self._world.now, overridden)

    def _leaked(self, scope: str) -> ModelBucket:
        """Return the bucket as of now."""
        if scope not in self._world.buckets:
            raise NotFound(f"there is no rate limit {scope!r}")
        return self._as_of_now(self._world.buckets[scope])

    def _as_of_now(self, bucket: ModelBucket) -> ModelBucket:
        elapsed = (self._world.now - bucket.at) // _MICROSECOND
        bucket.taken = max(0, bucket.taken - elapsed * bucket.limit.capacity)
        bucket.at = self._world.now
        return bucket

    def delete_rate_limit(self, scope: str) -> None:
        if scope not in self._world.buckets:
            raise NotFound(f"there is no rate limit {scope!r}")
        del self._world.buckets[scope]

    def rate_limits(self) -> list[RateLimitState]:
        found = []
        for scope in sorted(self._world.buckets):
            bucket = self._leaked(scope)
            period = _period(bucket.limit)
            left = max(0, bucket.limit.capacity * period - bucket.taken) // period
            missing = bucket.taken - (bucket.limit.capacity - left - 1) * period
            wait = -(-missing // bucket.limit.capacity) * _MICROSECOND
            limit = RateLimit(bucket.limit.capacity, bucket.limit.period)
            found.append(
                RateLimitState(
                    scope=scope,
                    limit=limit,
                    available=left,
                    overridden=bucket.overridden,
                    next_in=wait if bucket.taken else None,
                )
            )
        return found

    def take_tokens(self, scope: str, count: int, within: timedelta = ZERO) -> TokenGrant:
        bucket = self._leaked(scope)
        if not 1 <= count <= bucket.limit.capacity:
            raise InvalidInput("count", f"is {count}", f"give 1 to {bucket.limit.capacity}")
        return self._take(bucket, count, within)

    def _take(self, bucket: ModelBucket, count: int, within: timedelta = ZERO) -> TokenGrant:
        capacity, period = bucket.limit.capacity, _period(bucket.limit)
        surplus = bucket.taken - (capacity - count) * period
        wait = max(0, -(-surplus // capacity)) * _MICROSECOND
        if wait > min(within, _FURTHEST):
            return TokenGrant(False, wait)
        bucket.taken += count * period
        return TokenGrant(True, wait)

    def take_turns(
        self, scope: str, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        bucket = self._leaked(scope)
        for count in counts:
            if not 1 <= count <= bucket.limit.capacity:
                raise InvalidInput("count", f"is {count}", f"give 1 to {bucket.limit.capacity}")
        return self._turns(bucket, counts, within)

    def take_or_turn(self, asks: Sequence[RateAsk], within: timedelta) -> list[TokenGrant | None]:
        answers: list[TokenGrant | None] = []
        for ask in asks:
            if ask.scope not in self._world.buckets:
                answers.append(None)
                continue
            bucket = self._of_key(ask) if ask.key else self._leaked(ask.scope)
            if ask.ahead:
                answers.append(self._take_ahead(bucket, ask.ahead))
                continue
            own = self._turn_after(bucket, within)
            is_open = ask.had_turn or own <= self._world.now or bucket.taken <= 0
            answer = self._take(bucket, 1) if is_open else TokenGrant(False, ZERO)
            if not answer.granted:
                line = bucket.last_turn_at
                [turn] = self._turns(bucket, [1], within)
                if not ask.waits:
                    bucket.last_turn_at = line
                answer = TokenGrant(False, within if turn is None else turn)
            answers.append(answer)
        return answers

    def _take_ahead(self, bucket: ModelBucket, ahead: timedelta) -> TokenGrant:
        """Take a token as of the end of ``ahead``: what leaks until then is missing already."""
        capacity, period = bucket.limit.capacity, _period(bucket.limit)
        taken = max(bucket.taken, ahead // _MICROSECOND * capacity) + period
        token = -(-period // capacity) * _MICROSECOND
        plenty = taken * 2 <= capacity * period
        granted = plenty and bucket.last_turn_at + token <= self._world.now
        bucket.taken = taken if granted else bucket.taken
        return TokenGrant(granted, ZERO)

    def _turn_after(self, bucket: ModelBucket, within: timedelta) -> datetime:
        """Return when the token comes that belongs to none of the turns given before."""
        line = min(bucket.last_turn_at, self._world.now + within)
        return line + -(-_period(bucket.limit) // bucket.limit.capacity) * _MICROSECOND

    def _of_key(self, ask: RateAsk) -> ModelBucket:
        limit, now = self._world.buckets[ask.scope].limit, self._world.now
        full = ModelBucket(limit, 0, now, overridden=False)
        bucket = self._as_of_now(self._world.rate_keys.setdefault((ask.scope, ask.key), full))
        if bucket.limit != limit:
            bucket = ModelBucket(limit, _taken_after(bucket, limit), now, overridden=False)
            self._world.rate_keys[ask.scope, ask.key] = bucket
        return bucket

    def _turns(
        self, bucket: ModelBucket, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        capacity, period = bucket.limit.capacity, _period(bucket.limit)
        now, latest = self._world.now, self._world.now + within
        line = min(bucket.last_turn_at, latest)
        turns: list[timedelta | None] = []
        for count in counts:
            surplus = max(0, bucket.taken - (capacity - count) * period)
            there = now + -(-surplus // capacity) * _MICROSECOND
            turn = max(there, line + -(-count * period // capacity) * _MICROSECOND)
            turns.append(turn - now if turn <= latest else None)
            line = turn if turn <= latest else line
        bucket.last_turn_at = line
        return turns

    def drain_tokens(self, scope: str) -> None:
        bucket = self._leaked(scope)
        bucket.taken = max(bucket.taken, bucket.limit.capacity * _period(bucket.limit))


def _taken_after(bucket: ModelBucket, limit: RateLimit) -> int:
    """Return what is taken of the bucket in another size: as many tokens, rounded up to a step.

    Reserved tokens come when they were promised.
    """
    reserved = bucket.taken - bucket.limit.capacity * _period(bucket.limit)
    if reserved > 0:
        ahead = min(-(-reserved // bucket.limit.capacity), _FURTHEST // _MICROSECOND)
        return limit.capacity * (_period(limit) + ahead)
    step = gcd(limit.capacity, _period(limit))
    taken = -(-bucket.taken * _period(limit) // (_period(bucket.limit) * step)) * step
    return min(taken, limit.capacity * _period(limit))


def _period(limit: RateLimit) -> int:
    return limit.period // _MICROSECOND
