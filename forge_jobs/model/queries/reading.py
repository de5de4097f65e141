"""From a line of text to a query: ``queue:gh status:dead payload.customer:42 finished:<1h``."""

import re
from datetime import datetime, timedelta

import msgspec

from forge_jobs.durations import DURATION_FIX, parse_duration
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.queries.terms import (
    AGES,
    CHOICES,
    COMPARED,
    NUMBERS,
    PAYLOAD,
    TERMS,
    Choice,
    Compared,
    InPayload,
    JobQuery,
    Sign,
    Term,
    advice,
)

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_NAME = re.compile(rf'(-?)((?:[^\s:",]|{_QUOTED})+):', re.DOTALL)
_VALUE = re.compile(rf'(<=|>=|<|>|)({_QUOTED}|[^\s",]+)', re.DOTALL)
_STEP = re.compile(rf'\.({_QUOTED}|[^.":\s,]+)', re.DOTALL)
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_LITERALS = frozenset({"true", "false", "null"})
_KNOWN = (*CHOICES, *COMPARED, PAYLOAD)
_INSTANT_FIX = "an instant like 2026-01-31T18:00Z"


def parse_query(text: str) -> JobQuery:
    """Read a query.

    Terms stand apart by white space: ``name:value``, or ``name:value,value`` for jobs with either.
    ``-name:value`` excludes. A value with white space, a comma or a quote is a JSON text in double
    quotes. ``attempt``, ``crashes``, ``running``, ``enqueued``, ``finished`` and ``due`` compare
    with ``<``, ``<=``, ``>=`` or ``>``. The order of terms is kept. "" means every job.

    :raises InvalidInput: names the term that is unknown or has a bad value, and the nearest good
        one. Or two terms that no job can match together, more than 50 terms or 1,000 values
    """
    if not isinstance(text, str):
        raise InvalidInput("where", f"is {a_type(text)}", "give a text, as in queue:gh status:dead")
    terms: list[Term] = []
    at = _after_space(text, 0)
    while at < len(text):
        term, end = _term(text, at)
        terms.append(term)
        at = _after_space(text, end)
    return JobQuery(tuple(terms))


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _term(text: str, at: int) -> tuple[Term, int]:
    head = _NAME.match(text, at)
    if head is None:
        found = _WORD.match(text, at)
        word = found[0] if found else text[at:]
        fix = f"write name:value, as in error:{_quote(word[:40])}"
        raise InvalidInput(word[:40], "has no name before a colon", fix)
    name, is_excluded = head[2], bool(head[1])
    path = _path(name)
    if path is None and name not in CHOICES and name not in COMPARED:
        fix = advice(name, _KNOWN, f"the terms are {', '.join(TERMS)}")
        raise InvalidInput(name[:40], "is no term of a filter", fix)
    values, end = _values(text, head.end(), name)
    if path is not None:
        plain = tuple(_json(name, sign + value) for sign, value in values)
        return InPayload(path, plain, is_excluded), end
    if name in CHOICES:
        # A name may begin with < or >.
        named = tuple(_unquoted(name, sign + value) for sign, value in values)
        return Choice(name, named, is_excluded), end
    if is_excluded:
        raise InvalidInput(name, "cannot be excluded", f"turn the sign, as in {name}:<10")
    if len(values) > 1:
        fix = f"write {name}: twice for a range, as in {name}:>2 {name}:<5"
        raise InvalidInput(name, "has several values", fix)
    return _compared(name, *values[0]), end


def _values(text: str, at: int, name: str) -> tuple[list[tuple[Sign | str, str]], int]:
    """The values of a term, each with the sign before the value, and where they end."""
    values: list[tuple[Sign | str, str]] = []
    while True:
        found = _VALUE.match(text, at)
        if found is None:
            raise _no_value(text, at, name)
        values.append((found[1], found[2]))
        at = found.end()
        if at == len(text) or text[at].isspace():
            return values, at
        if text[at] != ",":
            fix = 'put the whole value in quotes, and \\" for a quote in there'
            raise InvalidInput(name, f"has a quote in {text[found.start() : at + 20]!r}", fix)
        at += 1


def _no_value(text: str, at: int, name: str) -> InvalidInput:
    if text[at : at + 1] == '"':
        return InvalidInput(name, "has a quote that does not end", 'end the value with "')
    return InvalidInput(name, "has no value", f"give one after the colon, as in {name}:VALUE")


def _unquoted(name: str, value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return msgspec.json.decode(value, type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        fix = "within quotes write a text as in JSON, a line break as \\n"
        raise InvalidInput(name, f"{value[:40]} is no text of JSON", fix) from None


def _json(name: str, value: str) -> str:
    """A value of a payload as JSON text: a bare word that is no number is a text."""
    if value.startswith('"') or value in _LITERALS or _NUMBER.fullmatch(value):
        return value
    return _quote(value)


def _quote(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        return '""'


def _path(name: str) -> tuple[str, ...] | None:
    """The names of ``payload.customer."first name"``. None for any other term."""
    if name != PAYLOAD and not name.startswith(f"{PAYLOAD}."):
        return None
    steps: list[str] = []
    at = len(PAYLOAD)
    while at < len(name):
        found = _STEP.match(name, at)
        if found is None:
            fix = 'put names with dots in quotes, as in payload."a.b".c:1'
            raise InvalidInput(name[:40], "has a path that cannot be read", fix)
        steps.append(_unquoted(name[:40], found[1]))
        at = found.end()
    return tuple(steps)


def _compared(name: str, sign: str, value: str) -> Compared:
    text = _unquoted(name, value)
    if name in NUMBERS:
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None
        if number is None:
            fix = f"give a number, as in {name}:>2"
            raise InvalidInput(name, f"{text[:40]!r} is no whole number", fix)
        return Compared(name, sign or "=", number)  # type: ignore[arg-type] # of the pattern
    if not sign:
        raise InvalidInput(name, "has no < or >", f"give a bound, as in {name}:>{text[:40]}")
    return Compared(name, sign, _moment(name, text))  # type: ignore[arg-type] # as above


def _moment(name: str, text: str) -> timedelta | datetime:
    """A duration, or where the term takes one an instant."""
    is_ahead = text.startswith("-")
    try:
        length = parse_duration(text.removeprefix("-"))
    except ValueError:
        if name not in AGES:
            raise InvalidInput(name, f"{text[:40]!r} is no duration", DURATION_FIX) from None
        fix = f"{DURATION_FIX} or {_INSTANT_FIX}"
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            problem = f"{text[:40]!r} is neither a duration nor an instant"
            raise InvalidInput(name, problem, fix) from None
        return at
    return -length if is_ahead else length
