"""Unique keys of requests: which one is meant, its values checked, and the key derived."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import NewJob, Unique
from forge_jobs.model.names import check_name
from forge_jobs.model.unique.keys import FOLLOWING, MODES, WITH_WINDOW, UniqueMode

_FIX = "give Unique(key, mode=...) or Unique(by=(...), mode=...)"

# Not in the fingerprint.
_LEFT_OUT = (b',"struck":null', b',"sequence":null', b',"limit_name":"","limit_key":""')


class _Plain(msgspec.Struct, frozen=True):
    """A key in a mode without further values, as every release writes it into a fingerprint."""

    key: str
    mode: UniqueMode


def as_fingerprinted(unique: Unique | None) -> Any:
    """Return what a request's fingerprint has of the key.

    Two releases side by side must make one fingerprint of one request.
    """
    if unique is None or unique.mode not in ("keep", "error"):
        return unique
    return _Plain(unique.key, unique.mode)


def wish_of(request: EnqueueRequest, defaults: HandlerOptions | None) -> Unique | None:
    """Return the key that a request asks for, else the handler's.

    :raises InvalidInput: the request has both forms, or no key at all in one of them
    """
    given = request.unique
    if request.unique_key is not None:
        if isinstance(given, Unique):
            raise InvalidInput("unique_key", "is given together with unique", "give one of them")
        return Unique(check_name("unique_key", request.unique_key))
    if given is msgspec.UNSET:
        return None if defaults is None else defaults.unique
    if given is None:
        return None
    return check_unique(given)


def check_unique(value: object) -> Unique:
    """``value`` as a key with its mode, the windows as timedeltas.

    :raises InvalidInput: a value is wrong, or two of them do not go together
    """
    if not isinstance(value, Unique):
        raise InvalidInput("unique", f"is {a_type(value)}", _FIX)
    if value.mode not in MODES:
        raise InvalidInput("unique", f"has mode {value.mode!r}", f"give one of {MODES}")
    by = _fields(value.by)
    if bool(by) == bool(value.key):
        problem = "has both a key and by" if by else "has no key"
        raise InvalidInput("unique", problem, _FIX)
    if not by:
        check_name("unique", value.key)
    window = _window(value)
    return Unique(value.key, value.mode, window, _at_most(value, window), by)


def _window(unique: Unique) -> timedelta | None:
    if unique.mode not in WITH_WINDOW:
        _refuse("unique.window", unique.window, unique.mode, "debounce and cooldown have")
        return None
    if unique.window is None:
        fix = f"give Unique(..., mode={unique.mode!r}, window=seconds)"
        raise InvalidInput("unique.window", "is missing", fix)
    return check_duration("unique.window", unique.window, above_zero=True)


def _at_most(unique: Unique, window: timedelta | None) -> timedelta | None:
    if unique.mode != "debounce":
        _refuse("unique.at_most", unique.at_most, unique.mode, "debounce has")
    if unique.at_most is None:
        return None
    at_most = check_duration("unique.at_most", unique.at_most, above_zero=True)
    if window is not None and at_most < window:
        fix = "give a time that is as long, or longer"
        raise InvalidInput("unique.at_most", "is shorter than the window", fix)
    return at_most


def _refuse(field: str, value: object, mode: str, whose: str) -> None:
    if value is not None:
        raise InvalidInput(field, f"is given in mode {mode!r}", f"leave it out; only {whose} one")


def _fields(by: object) -> tuple[str, ...]:
    fix = 'give field names, as in by=("customer", "day")'
    if isinstance(by, str) or not isinstance(by, Sequence | Iterable):
        raise InvalidInput("unique.by", f"is {a_type(by)}", fix)
    fields = tuple(by)
    for name in fields:
        if not isinstance(name, str) or not name:
            raise InvalidInput("unique.by", f"contains {name!r}", fix)
    if len(set(fields)) < len(fields):
        raise InvalidInput("unique.by", "names a field twice", "name each field once")
    return fields


def resolve(wish: Unique, request: EnqueueRequest, kind: str, payload: str) -> Unique:
    """Return the key of a request as stores take it, derived from the payload where so wished.

    :param kind: the handler's own kind, also where the request names an alias
    :raises InvalidInput: the payload lacks a field, or the mode and another option disagree
    """
    if wish.mode == "debounce" and (request.run_at is not None or request.delay is not None):
        name = "delay" if request.run_at is None else "run_at"
        fix = "leave it out; the window says when the job runs"
        raise InvalidInput(name, "is given together with mode 'debounce'", fix)
    if wish.mode in FOLLOWING and request.after:
        fix = "use mode 'replace' or 'keep', or leave after out"
        raise InvalidInput("after", f"is given together with mode {wish.mode!r}", fix)
    key = derived_key(kind, payload, wish.by) if wish.by else wish.key
    return Unique(key, wish.mode, wish.window, wish.at_most)


def derived_key(kind: str, payload: str, by: Sequence[str]) -> str:
    """Return the key that is derived from fields of a payload: ``by:`` and a hash.

    Hashed is canonical JSON: an object with the fields in ``by`` and the kind in ``kind``. All
    names are in the order of their code points, no white space stands between, and all but ASCII is
    escaped. Every release derives the same key.

    :param payload: JSON text of an object
    :raises InvalidInput: the payload lacks a field
    """
    values = msgspec.json.decode(payload)
    for name in by:
        if name not in values:
            raise InvalidInput(
                "unique",
                f"is derived from the field {name!r}, which the payload of {kind!r} lacks",
                "give that argument by name, also where the handler has a default",
            )
    content = {"by": {name: values[name] for name in by}, "kind": kind}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"by:{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def fingerprint(job: NewJob) -> str:
    """A hash of the request's content. The trace is left out: a repeat has one of its own."""
    return hashlib.blake2b(content_of(job), digest_size=16).hexdigest()


def content_of(job: NewJob) -> bytes:
    """Return what the fingerprint is of."""
    plain = msgspec.structs.replace(
        job, trace="", fingerprint="", unique=as_fingerprinted(job.unique), struck=None
    )
    text = msgspec.json.encode(plain).removesuffix(b"}")
    for each in _LEFT_OUT:
        text = text.removesuffix(each)
    return text + b"}"
