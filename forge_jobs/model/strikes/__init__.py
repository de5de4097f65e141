"""Strikes: rules by which operators keep jobs from running, by kind or by a condition."""

import hashlib
import re
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from forge_jobs.errors import InvalidInput, NotFound, a_type
from forge_jobs.model.names import check_stored_text

LONGEST_TEXT = 1000
"""Characters of a condition or a reason, at most."""

MOST_STRIKES = 1000
"""Strikes of an installation, at most."""

_FIX = """give one like 'customer_id == 7', 'region in ["eu", "us"]' or 'amount between [10, 20]'"""
_TEXT = re.compile(r"\s*([^\s=!<>]+)\s*(==|!=|<=|>=|<|>|\bin\b|\bbetween\b)\s*(.+?)\s*", re.DOTALL)
_STARS = "***"
_OF_LIST = {"in", "between"}
_ORDERED = ("<", "<=", ">", ">=")
_MARK = re.compile(r"[0-9a-f]{16} (.+)", re.DOTALL)


class Condition(Struct, frozen=True):
    """A comparison of a field of the payload.

    :param field: a path of names with dots between them: ``customer.id``
    :param operator: ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` or ``between``
    :param value: a JSON value. A list for ``in``, a list of two for ``between``, both included
    """

    field: str
    operator: str
    value: Any


class Effect(StrEnum):
    """The fate of a struck job."""

    HOLD = "hold"
    """The job waits, its attempt unused, until no strike means it any more."""
    CANCEL = "cancel"
    """The job is cancelled before its handler starts."""


class StrikeRule(Struct, frozen=True, kw_only=True):
    """The jobs that a strike means, and their fate.

    :param kind: of the jobs. "" for every kind
    :param where: a condition on the payload, see :func:`parse_condition`. "" for every payload
    :param effect: what becomes of the jobs
    :param reason: for people, at most 1,000 characters
    :raises InvalidInput: neither ``kind`` nor ``where`` is given, or a value is no such text
    """

    kind: str = ""
    where: str = ""
    effect: Effect = Effect.HOLD
    reason: str = ""

    def __post_init__(self) -> None:
        for name in ("kind", "where", "reason"):
            if not isinstance(text := getattr(self, name), str):
                raise InvalidInput(name, f"is {a_type(text)}", "give a text")
            if len(text) > LONGEST_TEXT:
                fix = f"give up to {LONGEST_TEXT}"
                raise InvalidInput(name, f"has {len(text)} characters", fix)
            check_stored_text(name, text)
        if self.effect not in tuple(Effect):
            raise InvalidInput("effect", f"is {self.effect!r}", "give hold or cancel")
        structs.force_setattr(self, "effect", Effect(self.effect))
        if not (self.kind or self.where):
            raise InvalidInput("kind", "is missing, and where too", "give one of them, or both")
        if self.where:
            parse_condition(self.where)

    def condition(self) -> Condition | None:
        """Return the condition on the payload, None when there is none."""
        return parse_condition(self.where) if self.where else None


class Strike(Struct, frozen=True, kw_only=True):
    """A stored strike.

    :param by: who has set the strike
    :param at: the store's time of the last change
    :param unreadable: why the record cannot be read. "" when it can. Such a strike holds no job
    """

    name: str
    rule: StrikeRule
    by: str
    at: datetime | None
    unreadable: str = ""


class Struck(Struct, frozen=True):
    """The fate of a new job that a strike means.

    A store holds a job that is stored as pending in the same step under the mark of the strike, or
    ends the job cancelled with a record of the strike, also a job that waits for others. The job
    counts as enqueued and as struck. No claim ever meets the job, and no waiter is woken. A job
    that waits for others is not held, and content that a waiting job gets is stored as if no strike
    meant the job: pods judge these before the run.

    :param mark: of the strike, see :func:`mark_of`
    :param message: of the error record of a job that is cancelled. "" for a job that is held
    """

    mark: str
    message: str = ""


def struck_by(strike: Strike) -> Struck:
    """Return the fate of a job that the strike means."""
    if strike.rule.effect is Effect.HOLD:
        return Struck(mark_of(strike))
    message = f"the strike {strike.name!r} of {strike.by} cancels it"
    reason = strike.rule.reason
    return Struck(mark_of(strike), f"{message}: {reason}" if reason else message)


def mark_of(strike: Strike) -> str:
    """Return the text by which a store knows the jobs that a strike holds: what it means, and its
    name. An edit of the kind, the condition or the effect makes another mark.
    """
    rule = strike.rule
    return f"{_digest(rule.kind, rule.where, rule.effect.value)} {strike.name}"


@lru_cache(maxsize=2 * MOST_STRIKES)
def _digest(*meaning: str) -> str:
    return hashlib.blake2b("\0".join(meaning).encode(), digest_size=8).hexdigest()


def name_of(mark: str | None) -> str | None:
    """Return the name of the strike of a mark. A text that is no mark is the name."""
    found = _MARK.fullmatch(mark or "")
    return mark if found is None else found[1]


def parse_condition(text: str) -> Condition:
    """Read ``FIELD OPERATOR VALUE``. The value is JSON.

    :raises InvalidInput: the text is something else
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidInput("where", f"is {text[:40]!r}", _FIX)
    try:
        value = msgspec.json.decode(found[3])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidInput("where", f"compares with {found[3][:40]!r}", _FIX) from None
    operator = found[2]
    if operator in _ORDERED and not is_ordered(value):
        raise InvalidInput("where", f"asks for the order of {found[3][:40]}", _FIX)
    if operator in _OF_LIST and not isinstance(value, list):
        raise InvalidInput("where", f"has no list behind {operator!r}", _FIX)
    if operator == "between" and not (len(value) == 2 and all(map(is_ordered, value))):
        raise InvalidInput("where", "has no two numbers or texts behind 'between'", _FIX)
    if operator in _OF_LIST and (why := _never_holds(operator, value)):
        raise InvalidInput("where", f"holds for no job, because {why}", _FIX)
    return Condition(found[1], operator, value)


def _never_holds(operator: str, value: list[Any]) -> str:
    """Return why no payload has such a value. "" where one may have it."""
    if operator == "in":
        return "" if value else "the list behind 'in' is empty"
    low, high = value
    if isinstance(low, str) != isinstance(high, str):
        return "nothing is between a number and a text"
    return "the lower bound is above the upper one; swap them" if low > high else ""


def is_ordered(value: object) -> bool:
    """Return whether a JSON value is a number or a text."""
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def hidden_values(strike: Strike) -> Strike:
    """Return the strike with asterisks for the values of its condition, which are of payloads."""
    condition = strike.rule.condition()
    if condition is None:
        return strike
    stars: object = _STARS if condition.operator not in _OF_LIST else [_STARS, _STARS]
    where = f"{condition.field} {condition.operator} {msgspec.json.encode(stars).decode()}"
    return structs.replace(strike, rule=structs.replace(strike.rule, where=where))


def no_strike(name: str) -> NotFound:
    """Return the error of a strike that is not there."""
    return NotFound(f"there is no strike {name!r}; forge-jobs strikes list names all")


def too_many() -> InvalidInput:
    """Return the error of one strike too many."""
    return InvalidInput("name", f"would be strike {MOST_STRIKES + 1}", "lift another one first")


class StoredStrike(Struct, frozen=True, kw_only=True):
    """A strike as stores keep it: JSON text."""

    kind: str = ""
    where: str = ""
    effect: str = ""
    reason: str = ""
    by: str = ""


def strike_text(rule: StrikeRule, by: str) -> str:
    """Return the text that a store keeps."""
    kept = StoredStrike(
        kind=rule.kind, where=rule.where, effect=rule.effect.value, reason=rule.reason, by=by
    )
    return msgspec.json.encode(kept).decode()


def read_strike(name: str, text: str, at: datetime | None) -> Strike:
    """Return the strike of a stored text, also where the text cannot be read."""
    rule, by, unreadable = _read(text)
    return Strike(name=name, rule=rule, by=by, at=at, unreadable=unreadable)


# All strikes are read again after each change of one.
@lru_cache(maxsize=2 * MOST_STRIKES)
def _read(text: str) -> tuple[StrikeRule, str, str]:
    try:
        kept = msgspec.json.decode(text, type=StoredStrike)
        rule = StrikeRule(
            kind=kept.kind, where=kept.where, effect=Effect(kept.effect), reason=kept.reason
        )
    except (msgspec.MsgspecError, ValueError, InvalidInput) as error:
        said = " ".join(str(error).split())[:200]
        return StrikeRule(kind="?", reason=""), "", said
    return rule, kept.by, ""
