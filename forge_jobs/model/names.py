"""The rules for names: of queues, kinds, keys, tags, schedules and rate-limit scopes."""

import re
import shlex
import unicodedata
from collections.abc import Iterable
from urllib.parse import quote

from forge_jobs.errors import InvalidInput, a_type

MAX_NAME_LENGTH = 200
_FIX = f"give 1 to {MAX_NAME_LENGTH} characters without control characters or commas"
_DOTS = re.compile(r"~*\.{1,2}")
_CONTROL_OR_SURROGATE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def check_queue(field: str, value: object) -> str:
    """``value`` as the name of a queue: a name without white space.

    White space is nearly always a slip there: ``FORGE_QUEUES="gh slack"`` is meant as two queues.

    :raises InvalidInput: the value breaks a rule
    """
    name = check_name(field, value)
    # One call in place of one for each character.
    if name.split() != [name]:
        fix = "remove it; commas stand between queues, as in gh,slack"
        raise InvalidInput(field, f"is {name!r}, which contains white space", fix)
    return name


def check_name(field: str, value: object) -> str:
    """``value`` as a name: 1 to 200 characters, no control characters, no comma.

    The comma separates names in ``FORGE_QUEUES``. Everything else printable is allowed and
    means nothing: quotes, braces, percent signs and globs are plain characters.

    :param field: what the caller calls the value. The error has that name
    :raises InvalidInput: the value breaks a rule
    """
    if not isinstance(value, str):
        raise InvalidInput(field, f"is {a_type(value)}, not a string", _FIX)
    if not value:
        raise InvalidInput(field, "is empty", _FIX)
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidInput(field, f"has {len(value)} characters", _FIX)
    # Plain printable ASCII is nearly every name there is. str.isprintable is one C call.
    if value.isascii() and value.isprintable() and "," not in value:
        return value
    if "," in value:
        raise InvalidInput(field, "contains a comma", _FIX)
    if any(unicodedata.category(character) in _CONTROL_OR_SURROGATE for character in value):
        raise InvalidInput(field, "contains a control character or a lone surrogate", _FIX)
    return value


def check_stored_text(field: str, value: str) -> str:
    """``value`` as a text that every store can hold.

    :raises InvalidInput: the text holds NUL or a lone surrogate, as an argument of a command that
        is no UTF-8
    """
    if not is_stored_text(value):
        raise InvalidInput(field, "contains a lone surrogate or NUL", "leave that character out")
    return value


def is_stored_text(value: str) -> bool:
    """Return whether every store can hold the text."""
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def command_line(command: str, *names: str, options: Iterable[str] = ()) -> str:
    """Return a command of ``forge-jobs`` that can be pasted into a shell, whatever the names.

    Options follow the names. Where a name begins with ``-``, options come first, and ``--`` ends
    them.

    :param command: the words of the command, as in ``"queues pause"``
    """
    words = ["forge-jobs", *command.split()]
    if any(name.startswith("-") for name in names):
        return shlex.join([*words, *options, "--", *names])
    return shlex.join([*words, *names, *options])


def path_part(name: str) -> str:
    """Return the name as one part of an address.

    Browsers and HTTP clients take the parts ``.`` and ``..`` out of an address, percent-encoded
    ones too. A tilde stands before such a name: ``~.`` and ``~..``.
    """
    return quote(f"~{name}" if _DOTS.fullmatch(name) else name, safe="")


def name_of_part(part: str) -> str:
    """Return the name that a decoded part of an address stands for."""
    return part[1:] if part.startswith("~") and _DOTS.fullmatch(part) else part
