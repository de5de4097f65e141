"""Stored JSON: checked once at the border, then an opaque text.

Refused, the same on every backend because some store refuses each of them: NUL characters,
NaN and infinities, lone surrogates, integers beyond 64 bits, more than 100 levels, and texts
above the size limit (bytes of UTF-8).
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from forge_jobs.errors import InvalidInput

ENCRYPTED_START = '{"forge_jobs.encrypted":'
"""How every encrypted text begins."""

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_DEPTH = 100
_MAX_INTEGER = 2**64 - 1
_MIN_INTEGER = -(2**63)

_encoder = msgspec.json.Encoder()


def encode_json(field: str, value: object, max_bytes: int = MAX_PAYLOAD_BYTES) -> str:
    """``value`` as JSON text.

    Takes what msgspec encodes: JSON types, dataclasses, Structs, datetimes, UUIDs, enums,
    decimals, bytes (as base64). Mapping keys become strings.

    :param field: what the caller calls the value. The error has that name and the path inside
    :param max_bytes: size limit of the text, in bytes of UTF-8
    :raises InvalidInput: the value, or a part, cannot be stored
    """
    _check(field, value, 1)
    try:
        encoded = _encoder.encode(value)
    except UnicodeEncodeError:
        raise InvalidInput(field, "contains a lone surrogate", "give valid Unicode text") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            field, f"cannot be written as JSON ({error})", "give JSON types"
        ) from None
    if len(encoded) > max_bytes:
        raise InvalidInput(
            field,
            f"takes {len(encoded)} bytes as JSON",
            f"give at most {max_bytes}, or store it elsewhere and pass a reference",
        )
    return encoded.decode()


def check_json_text(field: str, text: str) -> str:
    """``text`` unchanged, once checked to be JSON that every store can keep.

    :raises InvalidInput: the text is not JSON, or holds what :func:`encode_json` refuses
    """
    try:
        size = len(text.encode())
        if size > MAX_PAYLOAD_BYTES:
            fix = f"give at most {MAX_PAYLOAD_BYTES}"
            raise InvalidInput(field, f"takes {size} bytes as JSON", fix)
        value = msgspec.json.decode(text)
    except UnicodeEncodeError:
        raise InvalidInput(field, "contains a lone surrogate", "give valid Unicode text") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(field, f"is not valid JSON ({error})", "give one JSON value") from None
    _check(field, value, 1)
    return text


def _check(path: str, value: Any, depth: int) -> None:
    """Refuse values that msgspec would encode although some store cannot keep them."""
    kind = type(value)
    if kind is bool or value is None or (kind is int and 0 <= value <= _MAX_INTEGER):
        return
    if kind is str or kind is int or kind is float:
        _check_scalar(path, value)
    elif depth > MAX_DEPTH:
        raise InvalidInput(path, f"nests deeper than {MAX_DEPTH} levels", "flatten it")
    elif kind is dict or isinstance(value, Mapping):
        for key, item in value.items():
            # Of most objects a look at keys and texts is all there is to do, without a call and
            # without the path that an error would name.
            if type(key) is not str or "\x00" in key:
                _check(path, key, depth)
            if type(item) is not str or "\x00" in item:
                _check(f"{path}.{key}", item, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            _check(f"{path}[{index}]", item, depth + 1)
    else:
        _check_object(path, value, depth)


def _check_scalar(path: str, value: str | int | float) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise InvalidInput(path, "contains a NUL character", "remove it")
    elif isinstance(value, int):
        if not _MIN_INTEGER <= value <= _MAX_INTEGER:
            raise InvalidInput(path, "is an integer beyond 64 bits", "give it as a string")
    elif not math.isfinite(value):
        raise InvalidInput(path, f"is {value}", "give a finite number or null")


def _check_object(path: str, value: object, depth: int) -> None:
    """Look inside what is not a JSON type (a dataclass, an enum): by way of plain data."""
    try:
        plain = msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            path, f"cannot be written as JSON ({error})", "give JSON types"
        ) from None
    if type(plain) is not type(value):
        _check(path, plain, depth)
