"""Lists of values in statements.

``column IN (...)`` is another text for every length, which SQLite does not mind. Postgres plans
each text anew, so there the list is one array.
"""

from typing import Any

from sqlalchemy import ARRAY, ColumnElement, bindparam, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class _OneOf(FunctionElement[Any]):
    """The condition written both ways; each database takes its own."""

    inherit_cache = True


def one_of(column: ColumnElement[Any], parameter: str) -> Any:
    """Whether the column is among the values of a list parameter."""
    values: Any = bindparam(parameter, expanding=True)
    array: Any = bindparam(parameter, type_=ARRAY(column.type))
    return _OneOf(column.in_(values), column == func.any(array))


@compiles(_OneOf)
def _as_list(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    as_list, _ = element.clauses
    return compiler.process(as_list, **options)


@compiles(_OneOf, "postgresql")
def _as_array(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    _, as_array = element.clauses
    return compiler.process(as_array, **options)
