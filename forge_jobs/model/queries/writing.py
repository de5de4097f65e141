"""From a query to a line of text that reads as the same query."""

import re
from datetime import datetime, timedelta

import msgspec

from forge_jobs.durations import format_duration
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queries.terms import PAYLOAD, Choice, Compared, InPayload, JobQuery, Term

_BARE = re.compile(r'[^\s",]+')
_BARE_STEP = re.compile(r'[^\s",.:]+')
_QUOTED_ALWAYS = frozenset({"error"})


def format_query(query: JobQuery) -> str:
    """Write a query: ``parse_query`` reads the same query from the text. "" for no term."""
    return " ".join(map(_term, query.terms))


def _term(term: Term) -> str:
    if isinstance(term, Compared):
        sign = "" if term.sign == "=" else term.sign
        return f"{term.name}:{sign}{_value(term.value)}"
    minus = "-" if term.excluded else ""
    if isinstance(term, InPayload):
        path = "".join(f".{_quoted_unless(_BARE_STEP, step)}" for step in term.path)
        return f"{minus}{PAYLOAD}{path}:{','.join(term.values)}"
    return f"{minus}{term.name}:{','.join(_named(term, value) for value in term.values)}"


def _named(term: Choice, value: str) -> str:
    if term.name == "status":
        return JobStatus(value).in_words
    if term.name in _QUOTED_ALWAYS:
        return _quoted(value)
    return _quoted_unless(_BARE, value)


def _quoted_unless(bare: re.Pattern[str], text: str) -> str:
    return text if bare.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _value(value: int | timedelta | datetime) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        is_ahead = value < timedelta(0)
        return f"{'-' if is_ahead else ''}{format_duration(abs(value))}"
    return str(value)
