"""The terms of the filter language as values: what a line of text means.

A job must match every term of a query. Of the values of one term, one is enough. Values are checked
where they are made, so a query that exists can be written as text and read again.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.names import check_name, check_queue, check_stored_text, is_stored_text

PAYLOAD = "payload"
"""The first part of a term that looks into payloads: ``payload.customer.id:42``."""

NUMBERS = ("attempt", "crashes")
AGES = ("enqueued", "finished", "due")
"""Terms that take an instant, or a duration before now."""

LENGTHS = ("running",)
COMPARED = (*NUMBERS, *LENGTHS, *AGES)

_MOST_TERMS = 50
_MOST_VALUES = 1_000
_MOST_CHARACTERS = 1_000
_DEEPEST = 32
_LARGEST = 1_000_000_000
_LONGEST = timedelta(days=36_500)
_ZERO = timedelta(0)
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)

if TYPE_CHECKING:
    Value = int | timedelta | datetime
else:
    # In JSON times and lengths are texts, between which only the reader of a term can choose.
    Value = Any

Sign = Literal["<", "<=", "=", ">=", ">"]
_SIGNS = ("<", "<=", "=", ">=", ">")


def advice(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return what to give in place of a wrong word: the known one that looks most like it, if any.

    :param otherwise: what else helps, a sentence without its end
    """
    close = get_close_matches(word.casefold(), list(known), 1, 0.6)
    if not close:
        return otherwise
    return f"did you mean {close[0]}? {otherwise[:1].upper()}{otherwise[1:]}"


def _enum_reader(members: type[StrEnum], aliases: Mapping[str, str]) -> Callable[[str, str], str]:
    values = {member.value for member in members}
    known = [*values, *aliases]

    def read(name: str, value: str) -> str:
        word = aliases.get(value, value)
        if word not in values:
            fix = advice(value, known, f"give any of {', '.join(sorted(known))}")
            raise InvalidInput(name, f"{value[:40]!r} is not known", fix)
        return word

    return read


def _check_text(name: str, value: str) -> str:
    """A text to look for: anything that a store can hold."""
    if not 1 <= len(value) <= _MOST_CHARACTERS:
        raise InvalidInput(
            name, f"has {len(value)} characters", f"give 1 to {_MOST_CHARACTERS} of them"
        )
    return check_stored_text(name, value)


_STATUS_WORDS = {each.in_words: each.value for each in JobStatus if each.in_words != each.value}

CHOICES: Mapping[str, Callable[[str, str], str]] = {
    "queue": check_queue,
    "kind": check_name,
    "status": _enum_reader(JobStatus, _STATUS_WORDS),
    "cause": _enum_reader(Cause, {}),
    "tag": check_name,
    "schedule": check_name,
    "pod": check_name,
    "key": check_name,
    "id": lambda name, value: check_job_id(value, name),
    "group": check_name,
    "error": _check_text,
}
"""Terms that name values, and how each value is checked."""

_SEVERAL_PER_JOB = frozenset({"tag", "error"})
"""A job may match several positive terms of these: two tags, two parts of one message."""

TERMS = (*CHOICES, *COMPARED, f"{PAYLOAD}.PATH")


class Choice(Struct, frozen=True, tag="choice"):
    """A term that names values: ``queue:gh,slack``, ``-status:done``, ``error:"card declined"``.

    :param name: a key of ``CHOICES``. ``key`` is the unique key, ``group`` the group of errors
    :param values: at least one. Of ``error`` parts of the type or message of the newest error, in
        upper or lower case. Of all others whole values
    :param excluded: a job must match none of the values
    :raises InvalidInput: the name is unknown, or a value is none of that name
    """

    name: str
    values: tuple[str, ...]
    excluded: bool = False

    def __post_init__(self) -> None:
        if self.name not in CHOICES:
            raise InvalidInput(self.name, "names no values", f"give one of {', '.join(CHOICES)}")
        read = CHOICES[self.name]
        values = tuple(dict.fromkeys(read(self.name, value) for value in self.values))
        force_setattr(self, "values", _some(self.name, values))


class Compared(Struct, frozen=True, tag="compared"):
    """A term that compares: ``attempt:>2``, ``running:>10m``, ``finished:>2026-11-20T10:00Z``.

    :param name: one of ``COMPARED``
    :param value: a number of attempts or crashes. A duration: how long the job has run, or how long
        ago the job was enqueued, finished or due. So ``enqueued:<1h`` is the last hour. Of ``due``
        a negative duration lies ahead: ``due:>-1h`` falls due within the hour, or is due. Else an
        aware instant, kept in UTC
    :raises InvalidInput: the name does not go with such a value, or the value is out of range
    """

    name: str
    sign: Sign
    value: Value

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            force_setattr(self, "value", self._of_json(self.value))
        if self.name not in COMPARED or self.sign not in _SIGNS:
            raise InvalidInput(self.name, "cannot be compared so", "give a sign of <, <=, >=, >")
        if self.name in NUMBERS:
            self._check_number()
            return
        if self.sign == "=":
            fix = f"give a bound, as in {self.name}:>10m"
            raise InvalidInput(self.name, "has no < or >", fix)
        if isinstance(self.value, datetime) and self.name in AGES:
            force_setattr(self, "value", self._in_utc(self.value))
        elif isinstance(self.value, timedelta):
            shortest = -_LONGEST if self.name == "due" else _ZERO
            if not shortest <= self.value <= _LONGEST:
                is_below = self.value < shortest == _ZERO
                problem = "is below zero" if is_below else "is beyond a hundred years"
                raise InvalidInput(self.name, problem, f"give one like {self.name}:>10m")
        else:
            fix = "give a duration like 10m" + (" or an instant" if self.name in AGES else "")
            raise InvalidInput(self.name, f"is {a_type(self.value)}", fix)

    def _of_json(self, text: str) -> timedelta | datetime:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(text, datetime)
        with suppress(msgspec.ValidationError):
            return msgspec.convert(text, timedelta)
        raise InvalidInput(self.name, f"{text[:40]!r} is no time", "give an instant or a duration")

    def _check_number(self) -> None:
        if type(self.value) is not int or not 0 <= self.value <= _LARGEST:
            fix = f"give a number from 0, as in {self.name}:>2"
            raise InvalidInput(self.name, f"is {str(self.value)[:40]}", fix)

    def _in_utc(self, value: datetime) -> datetime:
        if value.utcoffset() is None:
            fix = "give one like 2026-01-31T18:00Z or 2026-01-31T18:00+02:00"
            raise InvalidInput(self.name, "has no time zone", fix)
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(self.name, f"is {value}", "give a nearer instant") from None


class InPayload(Struct, frozen=True, tag="payload"):
    """A term that looks into payloads: ``payload.customer.id:42``.

    :param path: the names that lead to the value, the outermost first. A whole number also means
        the place in a list, from 0
    :param values: JSON texts, each a text, a number, ``true``, ``false`` or ``null``
    :param excluded: the value at the path is none of these, or there is none
    :raises InvalidInput: the path is empty or too deep, or a value is no such JSON text
    """

    path: tuple[str, ...]
    values: tuple[str, ...]
    excluded: bool = False

    @property
    def name(self) -> str:
        """How messages name the term."""
        return ".".join((PAYLOAD, *self.path))

    def __post_init__(self) -> None:
        if not 1 <= len(self.path) <= _DEEPEST:
            fix = f"give 1 to {_DEEPEST} names, as in payload.customer.id:42"
            raise InvalidInput(PAYLOAD, f"has a path of {len(self.path)} names", fix)
        if not all(len(each) <= _MOST_CHARACTERS and is_stored_text(each) for each in self.path):
            fix = f"give names of at most {_MOST_CHARACTERS} plain characters"
            raise InvalidInput(PAYLOAD, "has a path with a name that is too long or odd", fix)
        values = tuple(dict.fromkeys(scalar_text(self.name, value) for value in self.values))
        force_setattr(self, "values", _some(self.name, values))


def scalar_text(name: str, text: str) -> str:
    """Return a JSON text of one value, in the form in which equal values have equal texts.

    :raises InvalidInput: the text is no JSON, no single value, or too long
    """
    fix = 'give a text in quotes, a number, true, false or null, as in payload.id:42,"A7"'
    if len(text) > _MOST_CHARACTERS:
        raise InvalidInput(name, f"has {len(text)} characters", f"give at most {_MOST_CHARACTERS}")
    try:
        # Whole numbers keep their digits: beyond 64 bits msgspec makes floats of them.
        value = int(text) if _WHOLE_NUMBER.fullmatch(text) else msgspec.json.decode(text)
    except (ValueError, msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidInput(name, f"{text[:40]!r} is no value of JSON", fix) from None
    if isinstance(value, dict | list):
        raise InvalidInput(name, f"{text[:40]!r} is no single value", fix)
    if isinstance(value, str) and not is_stored_text(value):
        raise InvalidInput(name, "contains NUL", "leave that character out")
    return str(value) if type(value) is int else msgspec.json.encode(value).decode()


def _some(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise InvalidInput(name, "has no value", f"give one, as in {name}:VALUE")
    return values


Term = Choice | Compared | InPayload


class JobQuery(Struct, frozen=True):
    """Selects jobs: a job must match every term. Without terms every job matches.

    :raises InvalidInput: too many terms or values, or two terms that no job can match together
    """

    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        if len(self.terms) > _MOST_TERMS:
            fix = f"give at most {_MOST_TERMS}"
            raise InvalidInput("where", f"has {len(self.terms)} terms", fix)
        values = sum(1 if isinstance(term, Compared) else len(term.values) for term in self.terms)
        if values > _MOST_VALUES:
            raise InvalidInput("where", f"has {values} values", f"give at most {_MOST_VALUES}")
        seen: set[str] = set()
        for term in self.terms:
            if not isinstance(term, Choice) or term.excluded or term.name in _SEVERAL_PER_JOB:
                continue
            if term.name in seen:
                fix = f"write {term.name}:A,B for jobs of either"
                raise InvalidInput(term.name, "stands twice, and no job can match both", fix)
            seen.add(term.name)
