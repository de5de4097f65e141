"""Judges jobs by strikes: (strikes, kind, payload) -> the strike that means the job."""

from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any

import msgspec

from forge_jobs.model.strikes import Condition, Effect, Strike, is_ordered, mark_of

_MISSING = object()
_PLAIN = (str, int, float, bool, NoneType)
"""Types of values that equal others by their text or number alone."""


def holds(condition: Condition, payload: object) -> bool:
    """Return whether a condition holds for a decoded payload. Never raises.

    Values of one type are compared: numbers (whole or not), texts, booleans, null, lists and
    objects. No value equals one of another type, so ``!=`` holds there, and ``true`` is no number.
    Only numbers and texts have an order. No condition holds for a field that is missing, ``!=``
    neither.
    """
    return _test(condition, _at(payload, condition.field.split(".")))


def _test(condition: Condition, value: object) -> bool:
    test = _TESTS.get(condition.operator)
    return test is not None and value is not _MISSING and test(value, condition.value)


def _at(payload: object, path: Iterable[str]) -> object:
    found = payload
    for name in path:
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


class _Rules:
    """The strikes that may mean jobs of one kind, first that which comes first.

    Strikes that ask for a number, a text or the like in a field are found by the value of the
    field, so a thousand of them cost what one does. Others are asked one after the other.
    """

    def __init__(self, strikes: Iterable[Strike]) -> None:
        self._strikes: list[Strike] = []
        self._by_value: dict[tuple[str, ...], dict[tuple[type, object], int]] = {}
        self._others: list[tuple[int, tuple[str, ...], Condition]] = []
        self._without: Strike | None = None
        for place, strike in enumerate(strikes):
            self._strikes.append(strike)
            condition = strike.rule.condition()
            if condition is None:
                # This strike means every job of the kind, so none after it is asked.
                self._without = strike
                break
            self._add(place, condition)

    def _add(self, place: int, condition: Condition) -> None:
        path = tuple(condition.field.split("."))
        wanted = condition.value if condition.operator == "in" else [condition.value]
        if condition.operator in {"==", "in"} and all(isinstance(each, _PLAIN) for each in wanted):
            found = self._by_value.setdefault(path, {})
            for each in wanted:
                found.setdefault((_sort(each), each), place)
        else:
            self._others.append((place, path, condition))

    def verdict(self, payload: Callable[[], str]) -> Strike | None:
        if not (self._by_value or self._others):
            return self._without
        try:
            decoded = msgspec.json.decode(payload())
        except Exception:
            return self._without
        first = len(self._strikes)
        for path, places in self._by_value.items():
            value = _at(decoded, path)
            if isinstance(value, _PLAIN):
                first = min(first, places.get((_sort(value), value), first))
        for place, path, condition in self._others:
            if place > first:
                break
            if _test(condition, _at(decoded, path)):
                return self._strikes[place]
        return self._strikes[first] if first < len(self._strikes) else self._without


class Judge:
    """Strikes that are ready to be asked. Empty ones are false.

    Of several strikes that mean a job, one that cancels comes first, then the order of names
    decides.

    :ivar marks: of all strikes, see ``JobStore.release_struck``
    """

    def __init__(self, strikes: Iterable[Strike] = ()) -> None:
        readable = [each for each in strikes if not each.unreadable]
        self.marks = frozenset(map(mark_of, readable))
        self._ordered = sorted(
            readable, key=lambda each: (each.rule.effect is not Effect.CANCEL, each.name)
        )
        # Made when a job of the kind is judged. Kinds that no strike names share the rules of "".
        self._of_kind: dict[str, _Rules | None] = dict.fromkeys(
            ("", *(each.rule.kind for each in readable))
        )

    def __bool__(self) -> bool:
        return bool(self.marks)

    def verdict(self, kind: str, payload: Callable[[], str]) -> Strike | None:
        """Return the strike that means a job, None when none does.

        :param payload: returns the payload as JSON text. Called when a condition needs it.
            Whatever it raises, and a text that is no JSON, holds no condition
        """
        named = kind if kind in self._of_kind else ""
        rules = self._of_kind[named]
        if rules is None:
            meant = (each for each in self._ordered if each.rule.kind in {"", named})
            rules = self._of_kind[named] = _Rules(meant)
        return rules.verdict(payload)
