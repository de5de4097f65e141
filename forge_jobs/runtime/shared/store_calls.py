"""How often a pod calls the store, verb by verb, and how long that takes."""

import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.processes import StoreCall
from forge_jobs.policy.percentiles import bucket_of, percentile
from forge_jobs.storage.pool_waits import OF_CALL, PoolWait
from forge_jobs.storage.protocols import Storage

MOST_VERBS = 16
"""Of the verbs those that took most time together. So the minute of a pod has a bounded size."""

_ANSWERS = (Conflict, InvalidInput, NotFound)
"""Errors by which a store answers a call. All others say that something is wrong with the store."""

_WAITS = "wait_for_work"
"""Takes as long as nothing happens, which says nothing about the store."""


class _Verb:
    """Calls of one verb."""

    def __init__(self) -> None:
        self.errors = 0
        self.seconds = 0.0
        self.buckets: Counter[int] = Counter()


class CallMeter:
    """Counts calls of a store since :meth:`take`. Callable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._verbs: dict[str, _Verb] = {}

    def observe(self, name: str, seconds: float, *, failed: bool = False) -> None:
        """Count a call."""
        bucket = bucket_of(seconds)
        with self._lock:
            verb = self._verbs.get(name)
            if verb is None:
                verb = self._verbs[name] = _Verb()
            verb.buckets[bucket] += 1
            verb.seconds += seconds
            verb.errors += failed

    def take(self) -> tuple[StoreCall, ...]:
        """Return the calls so far, those first that took most time, and begin anew."""
        with self._lock:
            verbs, self._verbs = self._verbs, {}
        dearest = sorted(verbs.items(), key=lambda each: (-each[1].seconds, each[0]))
        return tuple(_call(name, verb) for name, verb in dearest[:MOST_VERBS])


def _call(name: str, verb: _Verb) -> StoreCall:
    spread = Histogram(verb.buckets)
    p50, p99 = (round(1_000 * (percentile(spread, q) or 0.0), 3) for q in (0.5, 0.99))
    return StoreCall(name, verb.buckets.total(), verb.errors, p50, p99)


def metered(storage: Storage, meter: CallMeter, *, clock: Clock | None = None) -> Storage:
    """Return a bundle on the same connections, whose calls are counted.

    The time in which a call waits for a connection of the pool is left out: ``StoreHealth`` tells
    of it.

    Bundles that are reopened from there are not counted.
    """
    used = clock or SystemClock()
    return storage.wrapped(lambda view: _View(view, meter, used))


class _View:
    """A view of a store that counts the calls."""

    def __init__(self, view: Any, meter: CallMeter, clock: Clock) -> None:
        self._view = view
        self._meter = meter
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        # Python asks here for what is not kept yet: once for each verb, and each fixed number.
        found = getattr(self._view, name)
        if name != _WAITS and inspect.iscoroutinefunction(found):
            found = self._counted(name)
        setattr(self, name, found)
        return found

    def _counted(self, name: str) -> Callable[..., Awaitable[Any]]:
        view, observe, elapsed = self._view, self._meter.observe, self._clock.elapsed

        async def call(*given: Any, **named: Any) -> Any:
            began, wait = elapsed(), PoolWait()
            OF_CALL.set(wait)
            try:
                answer = await getattr(view, name)(*given, **named)
            except _ANSWERS:
                observe(name, elapsed() - began - wait.seconds)
                raise
            except Exception:
                observe(name, elapsed() - began - wait.seconds, failed=True)
                raise
            observe(name, elapsed() - began - wait.seconds)
            return answer

        return call
