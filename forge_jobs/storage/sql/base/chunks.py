"""Lists of values in statements, in portions every database takes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

_PORTION = 1000


def portions(values: Iterable[T]) -> Iterator[Sequence[T]]:
    """The values in lists that are short enough for one ``IN (...)``."""
    iterator = iter(values)
    while portion := list(islice(iterator, _PORTION)):
        yield portion
