"""Keys of limits: a text with names of arguments in braces, and the key of each payload."""

import hashlib
import string
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.names import check_name

_FIX = "write names of arguments in braces, as in key='{customer}'"


def check_template(field: str, key: object) -> None:
    """Refuse what is no text with names of arguments in braces. An empty text is one.

    :raises InvalidInput: names the field
    """
    if key != "" and not tuple(_fields(field, key)):
        raise InvalidInput(field, "names no argument", _FIX)


def check_fields(field: str, key: str, known: Collection[str]) -> None:
    """Refuse a key that names what is no argument of the handler.

    :raises InvalidInput: names the field
    """
    for name in _fields(field, key):
        if name not in known:
            fix = f"give some of {', '.join(known) or 'its arguments, once there are any'}"
            raise InvalidInput(field, f"names {name!r}, which is no argument of the handler", fix)


def key_of(template: str, payload: str, *, is_private: bool) -> str:
    """Return the key of a payload, "" where the template is.

    An argument that the payload lacks counts as an empty text.

    :param payload: JSON text of an object
    :param is_private: the key is a hash
    """
    if not template:
        return ""
    values = msgspec.json.decode(payload)
    named = {name: _text(values.get(name, "")) for name in _fields("key", template)}
    key = template.format_map(named)
    return _hashed(key) if is_private or not _is_name(key) else key


def _fields(field: str, key: object) -> Iterator[str]:
    if not isinstance(key, str):
        raise InvalidInput(field, f"is {a_type(key)}", _FIX)
    try:
        parts = list(string.Formatter().parse(key))
    except ValueError as error:
        raise InvalidInput(field, f"is {key!r:.80}: {error}", _FIX) from None
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise InvalidInput(field, f"holds {{{name}}} with more than a name", _FIX)
        yield name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_name(key: str) -> bool:
    try:
        check_name("key", key)
    except InvalidInput:
        return False
    return not key.startswith("#")


def _hashed(key: str) -> str:
    data = key.encode(errors="surrogatepass")
    return f"#{hashlib.blake2b(data, digest_size=16).hexdigest()}"
