"""Lists of values in statements.

``column IN (...)`` is another text for every length, which is compiled, parsed and planned anew. So
a list is sent as one value: an array on Postgres, a JSON text on SQLite.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ARRAY, ColumnElement, Dialect, Text, bindparam, func, select, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator


class _JsonList(TypeDecorator[Any]):
    """A list as one text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Iterable[Any] | None, dialect: Dialect) -> str:
        # An invalid text stays as given: the driver refuses it as anywhere else.
        return json.dumps(list(value or ()), ensure_ascii=False, default=_as_text)


def _as_text(value: object) -> str:
    """Return bytes that an edit by hand has put in place of an id as a text that is no id."""
    if isinstance(value, bytes):
        return repr(value)
    raise TypeError(f"{value!r} is no value of a list")


class _OneOf(FunctionElement[Any]):
    """The condition written both ways. Each database has one of them."""

    inherit_cache = True


def one_of(column: ColumnElement[Any], parameter: str) -> Any:
    """Return the condition that the column is among the values of a list parameter."""
    listed = func.json_each(bindparam(parameter, type_=_JsonList())).table_valued("value")
    array: Any = bindparam(parameter, type_=ARRAY(column.type))
    return _OneOf(column.in_(select(listed.c.value)), column == func.any(array))


@compiles(_OneOf)
def _as_json(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    as_json, _ = element.clauses
    return compiler.process(as_json, **options)


@compiles(_OneOf, "postgresql")
def _as_array(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    _, as_array = element.clauses
    return compiler.process(as_array, **options)


ID_LENGTH = 26


def pairs_among(first: ColumnElement[Any], second: ColumnElement[Any], parameter: str) -> Any:
    """Return the condition that the ids of two columns, one after the other, are a text of a list
    parameter."""
    listed = func.json_each(bindparam(parameter, type_=_JsonList())).table_valued("value")
    given = func.unnest(bindparam(parameter, type_=ARRAY(Text))).table_valued("value")
    columns = tuple_(first, second)
    return _OneOf(
        *(
            columns.in_(
                select(
                    func.substr(each.c.value, 1, ID_LENGTH),
                    func.substr(each.c.value, 1 + ID_LENGTH),
                ).select_from(each)
            )
            for each in (listed, given.render_derived())
        )
    )


T = TypeVar("T")

PORTION = 1000
"""So many values a list of a statement has at most."""


def portions(values: Iterable[T]) -> Iterator[Sequence[T]]:
    """Split the values into lists that are short enough for one ``IN (...)``."""
    iterator = iter(values)
    while portion := list(islice(iterator, PORTION)):
        yield portion
