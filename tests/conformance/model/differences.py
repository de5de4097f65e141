"""The first place where two answers differ, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


def difference(expected: Any, found: Any, path: str = "") -> str | None:
    """Return where and how ``found`` differs from ``expected``. None when they are equal."""
    if expected == found:
        return None
    inside = None
    if isinstance(expected, Struct) and type(expected) is type(found):
        inside = _of_parts(
            {name: getattr(expected, name) for name in expected.__struct_fields__},
            {name: getattr(found, name) for name in expected.__struct_fields__},
            path,
        )
    elif isinstance(expected, Mapping) and isinstance(found, Mapping):
        if expected.keys() == found.keys():
            inside = _of_parts(expected, found, path)
    elif _is_list(expected) and _is_list(found):
        parts = zip(expected, found, strict=False)
        told = (difference(*pair, f"{path}[{place}]") for place, pair in enumerate(parts))
        inside = next(filter(None, told), None)
        if inside is None:
            both = min(len(expected), len(found))
            surplus = f"also {found[both:]!r}" if len(found) > both else f"no {expected[both:]!r}"
            inside = f"{path or 'the answer'} has {surplus}, unlike the model"
    return inside or f"{path or 'the answer'}: {found!r}, the model says {expected!r}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _of_parts(expected: Mapping[Any, Any], found: Mapping[Any, Any], path: str) -> str | None:
    for key, value in expected.items():
        told = difference(value, found[key], f"{path}.{key}" if path else str(key))
        if told:
            return told
    return None
