"""Judges jobs by strikes: (strikes, kind, payload) -> the strike that means the job."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from forge_jobs.model.strikes import Condition, Effect, Strike, is_ordered, mark_of

_MISSING = object()


def holds(condition: Condition, payload: object) -> bool:
    """Return whether a condition holds for a decoded payload. Never raises.

    Values of one type are compared: numbers (whole or not), texts, booleans, null, lists and
    objects. No value equals one of another type, so ``!=`` holds there, and ``true`` is no number.
    Only numbers and texts have an order. No condition holds for a field that is missing, ``!=``
    neither.
    """
    value = _field(payload, condition.field)
    test = _TESTS.get(condition.operator)
    return test is not None and value is not _MISSING and test(value, condition.value)


def _field(payload: object, path: str) -> object:
    found = payload
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return _MISSING
        found = found[name]
    return found


def _sort(value: object) -> type:
    """The type by which values are compared."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _equal(one: object, other: object) -> bool:
    if _sort(one) is not _sort(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return one == other


def _in_order(one: Any, other: Any) -> bool:
    if not (is_ordered(one) and is_ordered(other)) or _sort(one) is not _sort(other):
        return False
    return bool(one <= other)


def _between(value: Any, bounds: Any) -> bool:
    low, high = bounds
    return _in_order(low, value) and _in_order(value, high)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda value, given: not _equal(value, given),
    "<": lambda value, given: _in_order(value, given) and not _equal(value, given),
    "<=": _in_order,
    ">": lambda value, given: _in_order(given, value) and not _equal(value, given),
    ">=": lambda value, given: _in_order(given, value),
    "in": lambda value, given: any(_equal(value, each) for each in given),
    "between": _between,
}


class Judge:
    """Strikes that are ready to be asked. Empty ones are false.

    Of several strikes that mean a job, one that cancels comes first, then the order of names
    decides.

    :ivar marks: of all strikes, see ``JobStore.release_struck``
    """

    def __init__(self, strikes: Iterable[Strike] = ()) -> None:
        readable = [each for each in strikes if not each.unreadable]
        self.marks = frozenset(map(mark_of, readable))
        self._strikes = [
            (each, each.rule.condition())
            for each in sorted(readable, key=lambda s: (s.rule.effect is not Effect.CANCEL, s.name))
        ]

    def __bool__(self) -> bool:
        return bool(self._strikes)

    def verdict(self, kind: str, payload: Callable[[], str]) -> Strike | None:
        """Return the strike that means a job, None when none does.

        :param payload: returns the payload as JSON text. Called when a condition needs it.
            Whatever it raises, and a text that is no JSON, holds no condition
        """
        decoded: object = _MISSING
        for strike, condition in self._strikes:
            if strike.rule.kind not in {"", kind}:
                continue
            if condition is None:
                return strike
            if decoded is _MISSING:
                try:
                    decoded = msgspec.json.decode(payload())
                except Exception:
                    decoded = None
            if holds(condition, decoded):
                return strike
        return None
