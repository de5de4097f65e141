"""Answers of scripts, which may hold stored texts that are not UTF-8."""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode

# Of a head byte: how many bytes hold the length, and the unit of the length.
_LONG_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_LONG_LISTS = {0xDC: 2, 0xDD: 4}
_LONG_MAPS = {0xDE: 2, 0xDF: 4}
# How many bytes the numbers and constants take, head included, that take more than one.
_NUMBERS = {
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
}


class Decoder(Generic[T]):
    """Decodes an answer. Bytes that are no character are shown as escapes, such as ``\\xff``.

    :param answer: the type
    """

    def __init__(self, answer: type[T]) -> None:
        self._strict = msgspec.msgpack.Decoder(answer)

    def decode(self, packed: bytes | msgspec.Raw) -> T:
        """The answer."""
        try:
            return self._strict.decode(packed)
        except msgspec.ValidationError:
            raise
        except (UnicodeDecodeError, msgspec.DecodeError):  # The latter from msgspec 0.23 on.
            value, _ = _read(bytes(packed), 0)
            return self._strict.decode(_encode(value))


def _read(packed: bytes, at: int) -> tuple[Any, int]:
    """Return the value that begins there, and where the value ends."""
    head = packed[at]
    if 0xA0 <= head <= 0xBF or head in _LONG_TEXTS:
        length, at = _length(packed, at, head & 0x1F, _LONG_TEXTS)
        return packed[at : at + length].decode(errors="backslashreplace"), at + length
    if 0x90 <= head <= 0x9F or head in _LONG_LISTS:
        length, at = _length(packed, at, head & 0x0F, _LONG_LISTS)
        return _read_many(packed, at, length)
    if 0x80 <= head <= 0x8F or head in _LONG_MAPS:
        length, at = _length(packed, at, head & 0x0F, _LONG_MAPS)
        parts, at = _read_many(packed, at, 2 * length)
        return dict(zip(parts[::2], parts[1::2], strict=True)), at
    ends = at + _NUMBERS.get(head, 1)
    return _decode(packed[at:ends]), ends


def _length(packed: bytes, at: int, short: int, long: dict[int, int]) -> tuple[int, int]:
    """Return how long the value is, and where its content begins."""
    size = long.get(packed[at])
    if size is None:
        return short, at + 1
    begins = at + 1 + size
    return int.from_bytes(packed[at + 1 : begins]), begins


def _read_many(packed: bytes, at: int, number: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(number):
        value, at = _read(packed, at)
        values.append(value)
    return values, at
