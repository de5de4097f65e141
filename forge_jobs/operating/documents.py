"""Documents: what ``--json`` prints and the HTTP API answers, from records."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

R = TypeVar("R", bound=Struct)


def document(value: object) -> bytes:
    """Return the JSON document of a value, on one line."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=-1)


def plain(value: object) -> Any:
    """``value`` in JSON types: records become objects, instants ISO texts in UTC, durations
    seconds, sets sorted lists.

    Fields that a record names in ``JSON_TEXTS`` become the values that they say, byte for byte.
    """
    if isinstance(value, Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        for name in getattr(value, "JSON_TEXTS", ()):
            fields[name] = _said(fields[name])
        tag = value.__struct_config__.tag
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _said(text: str | None) -> Any:
    """The JSON of a text. What is no JSON stays a text."""
    if not text:
        return None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text, type=msgspec.Raw)
    return text


def widened(form: type[R], record: Struct, **more: Any) -> R:
    """Return the record in a form that has further fields."""
    return form(**{name: getattr(record, name) for name in record.__struct_fields__} | more)


class Deleted(Struct, frozen=True, kw_only=True):
    """A deleted record, and what went along.

    :param jobs: how many jobs went with a queue
    :param schedules: schedules that make the deleted queue again when they fire
    """

    name: str
    jobs: int = 0
    schedules: tuple[str, ...] = ()
