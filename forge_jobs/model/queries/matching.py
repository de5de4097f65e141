"""Terms that no store can check by columns: what they mean for the texts of a job.

Numbers of payloads keep their digits and a text may be written with other escapes, so payloads are
compared as values, here, and for every store alike.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from forge_jobs.errors import InvalidInput
from forge_jobs.model.payloads import ENCRYPTED_START
from forge_jobs.model.queries.terms import PAYLOAD, Choice, InPayload, Term, scalar_text

_split_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_split_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Texts(NamedTuple):
    """The texts of a job that terms look into.

    :ivar error: type and message of the newest error, "" when there is none
    :ivar group: the group of the newest error, "" when there is none
    """

    payload: str
    error: str
    group: str


def is_deep(term: Term) -> bool:
    """Return True for a term about the texts of a job."""
    return isinstance(term, InPayload) or term.name in {"error", "group"}


def texts_match(terms: Iterable[Term], texts: Texts) -> bool:
    """Return whether a job with these texts matches all deep terms among ``terms``.

    An encrypted payload, and one that is no JSON, matches no term about payloads, also no excluded
    one: nothing is known of what is in there.
    """
    for term in terms:
        if isinstance(term, InPayload):
            if not _in_payload(term, texts.payload):
                return False
        elif isinstance(term, Choice) and is_deep(term) and _names(term, texts) == term.excluded:
            return False
    return True


def _names(term: Choice, texts: Texts) -> bool:
    """Return whether one of the values fits."""
    if term.name == "group":
        return texts.group in term.values
    error = texts.error.casefold()
    return any(value.casefold() in error for value in term.values)


def _in_payload(term: InPayload, payload: str) -> bool:
    if not payload or payload.startswith(ENCRYPTED_START):
        return False
    try:
        found = _at(payload.encode(), term.path)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return (found in term.values) != term.excluded


def _at(raw: bytes, path: tuple[str, ...]) -> str | None:
    """The value at the path in the form of the values of terms. None where there is no single
    one."""
    value: bytes = raw
    for step in path:
        start = value.lstrip()[:1]
        if start == b"{":
            inside = _split_object(value).get(step)
        elif start == b"[" and step.isascii() and step.isdigit() and len(step) < 10:
            items = _split_list(value)
            inside = items[int(step)] if int(step) < len(items) else None
        else:
            return None
        if inside is None:
            return None
        value = bytes(inside)
    try:
        return scalar_text(PAYLOAD, value.decode().strip())
    except InvalidInput:
        return None
