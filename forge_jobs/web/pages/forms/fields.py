"""Fields of forms: what a person has typed stays, and what is wrong stands beside."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.durations import parse_duration
from forge_jobs.errors import InvalidInput


class Field(Struct, frozen=True, kw_only=True):
    """A field of the form.

    :param text: as the form shows the value. "" for none
    """

    name: str
    label: str
    text: str
    hint: str = ""
    is_long: bool = False
    problem: str = ""


def as_typed(field: Field, typed: Mapping[str, str], error: InvalidInput | None) -> Field:
    """Return the field with what was typed, and what is wrong with that."""
    problem = ""
    # A part of the payload is named as payload.name.
    if error is not None and re.split(r"[.\[]", error.field, maxsplit=1)[0] == field.name:
        where = error.field.removeprefix(field.name).lstrip(".")
        problem = f"{where} {error.problem}; {error.fix}".lstrip()
    return msgspec.structs.replace(
        field, text=text_in(typed.get(field.name, field.text)), problem=problem
    )


def text_in(typed: str) -> str:
    """Return what was typed, without the line ends of forms."""
    return typed.replace("\r\n", "\n").strip()


def _number(name: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InvalidInput(name, f"is {text[:40]!r}", "give a whole number")
    return int(text)


def _instant(name: str, text: str) -> datetime:
    fix = "give one like 2026-01-31T18:00:00Z or 2026-01-31T18:00:00+02:00"
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(name, f"is {text[:40]!r}, not an instant", fix) from None


def length_in(text: str, name: str = "timeout") -> timedelta:
    """Return the duration of a text.

    :raises InvalidInput: names the field
    """
    try:
        return parse_duration(text)
    except (ValueError, OverflowError) as error:
        problem, _, fix = str(error).partition("; ")
        raise InvalidInput(name, problem, fix or "give one like 90s") from None


def _texts(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidInput("metadata", "is no object of texts", 'give {"key":"text"}') from None


READERS: dict[str, Any] = {
    "priority": lambda text: _number("priority", text),
    "due_at": lambda text: _instant("due_at", text),
    "expires_at": lambda text: _instant("expires_at", text) if text else None,
    "max_attempts": lambda text: _number("max_attempts", text) if text else None,
    "timeout": lambda text: length_in(text) if text else None,
    "tags": lambda text: tuple(tag.strip() for tag in text.split(",") if tag.strip()),
    "metadata": _texts,
    "payload": lambda text: msgspec.Raw(text.encode("utf-8", "replace")),
}
