"""Operations as HTTP sees them: which part of a request is which argument."""

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from forge_jobs.durations import parse_duration
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.objectives import Objective, parse_objective
from forge_jobs.operating.operations import OPERATIONS, Operation
from forge_jobs.operating.operator import Operator
from forge_jobs.web.api.bodies import NewJobBody, WhichBody
from forge_jobs.web.problems import Refused
from forge_jobs.web.values import nearest

ALL_JOBS = "all_jobs"
"""An argument that the ``all`` of a filter's body stands for."""


class Argument(Struct, frozen=True, kw_only=True):
    """An argument of an operation that comes with the path or the query.

    :param form: ``str``, ``int``, ``bool``, ``timedelta``, ``datetime``, ``JobFilter``, or
        ``Iterable`` for names that may be repeated
    """

    name: str
    form: type
    is_required: bool
    in_path: bool = False

    @property
    def key(self) -> str:
        """The name of the parameter in a query."""
        return "q" if self.form is JobFilter else self.name


class Bound(Struct, frozen=True, kw_only=True):
    """An operation with its way into HTTP.

    :param body_name: the argument that the body is. "" without a body, and for a body whose fields
        are arguments
    :param body: the type that a body is read as
    """

    operation: Operation
    method: str
    path: str
    arguments: tuple[Argument, ...]
    body_name: str = ""
    body: Any = None
    result: Any = None
    summary: str = ""

    def read_query(self, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the arguments of a query, without filters, which need the store's time.

        :raises Refused: an unknown parameter
        :raises InvalidInput: a bad value
        """
        known = {each.key: each for each in self.arguments if not each.in_path}
        found: dict[str, Any] = {}
        for key, text in given:
            argument = known.get(key)
            if argument is None:
                raise _unknown(key, known)
            if argument.form is Iterable:
                found.setdefault(argument.name, []).append(text)
            elif argument.name in found:
                raise InvalidInput(key, "is given twice", "give one")
            else:
                found[argument.name] = read_text(argument, text)
        for each in known.values():
            if each.is_required and each.name not in found:
                raise InvalidInput(each.key, "is missing", "give one")
        return found

    def read_body(self, content: bytes) -> Any:
        """Return the body as the type of the operation.

        :raises Refused: the body is no such JSON
        """
        if not content and not self.body_name and self.body is not None:
            content = b"{}"
        if self.body is None:
            if content.strip() not in (b"", b"{}"):
                raise Refused(
                    400, "unexpected-body", "the operation takes no body", "send none", field="body"
                )
            return None
        try:
            # Not strict: durations are numbers of seconds here.
            return msgspec.json.decode(content, type=self.body, strict=False)
        except InvalidInput:
            raise
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            said = str(error) if isinstance(error, msgspec.MsgspecError) else "is no such JSON"
            raise Refused(
                400, "bad-body", said, "send what openapi.json describes", field="body"
            ) from None


def _unknown(key: str, known: Mapping[str, Argument]) -> Refused:
    near = nearest(key, known)
    listed = ", ".join(known) or "none"
    fix = f"did you mean {near}?" if near else f"the parameters are: {listed}"
    return Refused(400, "unknown-parameter", f"{key[:40]!r} is no parameter", fix, field=key[:40])


def read_text(argument: Argument, text: str) -> Any:
    """Return the value of a parameter.

    :raises InvalidInput: names the parameter
    """
    reader, fix = _READERS.get(argument.form, (str, ""))
    try:
        return reader(text)
    except (LookupError, ValueError, OverflowError):
        raise InvalidInput(argument.key, f"is {text[:40]!r}", fix) from None


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 18):
        raise ValueError(text)
    return int(text)


def _instant(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(text)
    return parsed


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (_whole, "give a whole number"),
    float: (_number, "give a number"),
    Objective: (parse_objective, "give one like 95% within 30s"),
    bool: ({"true": True, "false": False}.__getitem__, "give true or false"),
    timedelta: (parse_duration, "give a duration, as 90s or 1h"),
    datetime: (_instant, "give an instant with an offset"),
}


@functools.cache
def bound_operations() -> tuple[Bound, ...]:
    """Return all operations that HTTP can carry, in the order of the table."""
    return tuple(_bound(operation) for operation in OPERATIONS)


def _bound(operation: Operation) -> Bound:
    method, _, path = operation.http.partition(" ")
    function = getattr(Operator, operation.name)
    hints = typing.get_type_hints(function)
    summary = (inspect.getdoc(function) or operation.name).split("\n\n")[0].replace("\n", " ")
    arguments: list[Argument] = []
    rest: list[_Rest] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        in_path = f"{{{parameter.name}}}" in path
        form = _form(hints[parameter.name])
        is_required = in_path or parameter.default is parameter.empty
        if in_path or method not in ("POST", "PUT", "PATCH"):
            arguments.append(
                Argument(name=parameter.name, form=form, is_required=is_required, in_path=in_path)
            )
        else:
            rest.append(_Rest(parameter, form, hints[parameter.name], is_required))
    body_name, body = _body_of(operation.name, rest)
    if body_name:
        arguments += [
            Argument(name=each.parameter.name, form=each.form, is_required=False)
            for each in rest
            if each.parameter.name != body_name
        ]
    return Bound(
        operation=operation,
        method=method,
        path=path,
        arguments=tuple(arguments),
        body_name=body_name,
        body=body,
        result=hints["return"],
        summary=summary,
    )


class _Rest(NamedTuple):
    """An argument that is neither in the path nor of a reading."""

    parameter: inspect.Parameter
    form: Any
    hint: Any
    is_required: bool

    @property
    def is_record(self) -> bool:
        return isinstance(self.form, type) and issubclass(self.form, Struct)


def _body_of(name: str, rest: list[_Rest]) -> tuple[str, Any]:
    """Return the argument that the body is, and the type of the body.

    One record is the body, and what may be left out beside the record is in the query. Several
    arguments are fields of the body, which has no name then.
    """
    if not rest:
        return "", None
    records = [each for each in rest if each.is_record]
    if len(records) == 1 and not any(each.is_required for each in rest if not each.is_record):
        return records[0].parameter.name, _body(records[0].form)
    fields: list[Any] = []
    for each in rest:
        hint = _body(each.form) if each.is_record else each.hint
        default = () if each.is_required else (each.parameter.default,)
        if each.parameter.name != ALL_JOBS:
            fields.append((each.parameter.name, hint, *default))
    return "", msgspec.defstruct(
        f"{name}_body", fields, frozen=True, kw_only=True, forbid_unknown_fields=True
    )


def _form(hint: Any) -> Any:
    """Return the type of an argument without None and without what a container holds."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        [hint] = [each for each in typing.get_args(hint) if each is not type(None)]
    origin = typing.get_origin(hint)
    return hint if origin is None else origin


@functools.cache
def _body(form: Any) -> Any:
    if form is EnqueueRequest:
        return NewJobBody
    if form is JobFilter:
        return WhichBody
    return msgspec.defstruct(
        f"{form.__name__}Body",
        (),
        bases=(form,),
        frozen=True,
        forbid_unknown_fields=True,
        module=form.__module__,
    )
