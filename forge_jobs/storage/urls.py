"""Parts of a store's URL, checked the same way for every backend."""

import difflib
import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

from forge_jobs.errors import InvalidInput

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def options_of(query: str, known: Iterable[str]) -> dict[str, str]:
    """Return the options of a query string.

    :raises InvalidInput: an option is not among the ``known``
    """
    names = tuple(known)
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in names:
            raise unknown("option", name, names)
    return options


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    """Return an option that is one of a few words, in any case."""
    value = options.get(name, default).lower()
    if value not in choices:
        raise unknown(name, options[name], choices)
    return value


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return an option that is true or false."""
    if name not in options:
        return default
    value = options[name].lower()
    if value not in (*_TRUE, *_FALSE):
        raise unknown(name, options[name], ("true", "false"))
    return value in _TRUE


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """Return an option that is a duration, above 0 and at most an hour."""
    if name not in options:
        return default
    value = options[name]
    if not re.fullmatch(r"\d+(\.\d+)?", value) or not 0 < float(value) <= 3600:
        raise InvalidInput("url", f"has a {name} that is no duration", "give 1 to 3600 seconds")
    return float(value)


def count(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Return an option that is a whole number from ``least`` to ``most``."""
    if name not in options:
        return default
    value = options[name]
    if not re.fullmatch(r"\d{1,9}", value) or not least <= int(value) <= most:
        raise InvalidInput("url", f"has a {name} out of range", f"give {least} to {most}")
    return int(value)


def unknown(what: str, value: str, known: Iterable[str]) -> InvalidInput:
    """Return the error for an unknown word. The text names the nearest known word."""
    names = list(known)
    nearest = difflib.get_close_matches(value, names, 1)
    fix = f"did you mean {nearest[0]}?" if nearest else f"give one of: {', '.join(names)}"
    return InvalidInput("url", f"has the unknown {what} {value!r}", fix)
