"""From a request to what a store takes: defaults filled in, every value checked, once."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter, is_
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.limits.sequences import limits_of
from forge_jobs.handlers.option_checks import (
    check_attempts,
    check_flag,
    check_priority,
    check_tags,
)
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import CheckedJson, EnqueueRequest, OurKey
from forge_jobs.handlers.routing import Elsewhere, Router
from forge_jobs.handlers.spreading import spread_out
from forge_jobs.handlers.unique_keys import content_of, fingerprint, resolve, wish_of
from forge_jobs.model.ids import check_job_id, new_job_id
from forge_jobs.model.jobs import After, NewJob
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.payloads import check_json_text, encode_json
from forge_jobs.model.unique.keys import length
from forge_jobs.privacy.encryption import Encryption, Part, origin_of
from forge_jobs.privacy.secrets import ORIGIN, SECRETS

DEFAULT_QUEUE = "default"
MAX_METADATA_BYTES = 64 * 1024
MAX_PARENTS = 10_000
_OURS = "forge_jobs."

Judged = Callable[[NewJob], NewJob]
"""Gives a job the fate that a strike has for it."""

_NO_DEFAULTS = HandlerOptions()
_ON_FAILURE = ("cancel", "continue", "hold", "note")

# The names of a request's fields beside its payload. Then the same without those that are a new
# dictionary in each request.
_NAMES = ("kind", "queue")
_named = attrgetter(*_NAMES)
_asked = attrgetter(
    *(
        name
        for name in EnqueueRequest.__struct_fields__
        if name not in {*_NAMES, "payload", "metadata", "trace", "spread"}
    )
)


def prepare(
    request: EnqueueRequest,
    registry: HandlerRegistry | None = None,
    router: Router | None = None,
    elsewhere: Elsewhere | None = None,
    encryption: Encryption | None = None,
    *,
    judge: Judged | None = None,
) -> NewJob:
    """The job that ``request`` asks for, with a fresh id unless it brings one.

    A payload for a kind in ``registry`` is checked against that handler's signature, however the
    request was made.

    :param elsewhere: asked for kinds whose handler is not at hand, before the router
    :param encryption: of payloads for kinds whose handler is not at hand
    :param judge: sees the job before the payload is encrypted
    :raises InvalidInput: a value is wrong. Names the option and the fix
    """
    check_request(request)
    handler, defaults = _known_of(request, registry)
    job = _unencrypted(request, handler, defaults, router, elsewhere)
    if judge is not None:
        job = judge(job)
    encryption = defaults.encryption or encryption
    if encryption is not None or request.id is not None:
        job = _finished(job, encryption, has_own_id=request.id is not None)
    spread = defaults.spread if request.spread is UNSET else request.spread
    return job if spread is None else spread_out(job, spread)


def unencrypted(
    request: EnqueueRequest,
    registry: HandlerRegistry | None = None,
    router: Router | None = None,
) -> tuple[NewJob, Encryption | None]:
    """The job of :func:`prepare` before the encryption, and the encryption of the handler.

    :raises InvalidInput: see :func:`prepare`
    """
    check_request(request)
    handler, defaults = _known_of(request, registry)
    return _unencrypted(request, handler, defaults, router, None), defaults.encryption


def _known_of(
    request: EnqueueRequest, registry: HandlerRegistry | None
) -> "tuple[Handler[..., Any] | None, HandlerOptions]":
    """Return the handler of the request as far as the registry has it, and the options that stand
    in for those left out. ``_NO_DEFAULTS``: neither request nor registry know the handler."""
    handler = None
    if registry is not None and isinstance(request.kind, str):
        handler = registry.get(request.kind)
    if request.handler_options is not None:
        return handler, request.handler_options
    return handler, _NO_DEFAULTS if handler is None else handler.options


def _unencrypted(
    request: EnqueueRequest,
    handler: "Handler[..., Any] | None",
    defaults: HandlerOptions,
    router: Router | None,
    elsewhere: Elsewhere | None,
) -> NewJob:
    # Most requests leave most options out. A value of the handler was checked when the handler was
    # registered, and a value that was left out costs no call here: with a call for each option, an
    # enqueue among 100 callers made 99 calls of Python functions, and now 44.
    kind = request.kind if handler is not None else check_name("kind", request.kind)
    own_kind = kind if handler is None else handler.kind
    payload = _payload(request, handler)
    run_at = delay = unique = None
    if request.run_at is not None or request.delay is not None:
        run_at, delay = _due(request.run_at, request.delay)
    if not (request.unique is UNSET and request.unique_key is None and defaults.unique is None):
        wish = wish_of(request, defaults)
        unique = None if wish is None else resolve(wish, request, own_kind, payload)
        if unique is not None and unique.mode == "debounce":
            delay = length(unique.window)
    limit_name, limit_key, line = "", "", None
    asked = (request.concurrency_key, request.sequence_key)
    if asked != (UNSET, UNSET) or defaults.concurrency or defaults.sequence:
        is_private = bool(defaults.encryption or defaults.secrets)
        declared = (defaults.concurrency, defaults.sequence)
        found = limits_of(declared, asked, own_kind, payload, is_private=is_private)
        limit_name, limit_key, line = found
    return NewJob(
        id=new_job_id() if request.id is None else check_job_id(request.id),
        # An alias goes to the queue of its kind.
        queue=_queue(
            request, own_kind, defaults, router, elsewhere if defaults is _NO_DEFAULTS else None
        ),
        kind=kind,
        payload=payload,
        priority=(
            defaults.priority if request.priority is UNSET else check_priority(request.priority)
        ),
        run_at=run_at,
        delay=delay,
        max_attempts=(
            defaults.max_attempts
            if request.max_attempts is UNSET
            else check_attempts(request.max_attempts)
        ),
        unique=unique,
        after=_after(request.after) if request.after else (),
        timeout=(
            defaults.timeout if request.timeout is UNSET else _positive("timeout", request.timeout)
        ),
        tags=defaults.tags if request.tags is UNSET else check_tags(request.tags),
        metadata=_metadata(request, defaults) if request.metadata or defaults.secrets else "{}",
        trace=_strings("trace", request.trace) if request.trace else "",
        expires_at=None if request.expires_at is None else _aware("expires_at", request.expires_at),
        keep_result=(
            defaults.keep_result
            if request.keep_result is UNSET
            else check_flag("keep_result", request.keep_result)
        ),
        result_ttl=(
            None if request.result_ttl is None else _positive("result_ttl", request.result_ttl)
        ),
        limit_name=limit_name,
        limit_key=limit_key,
        sequence=line,
    )


def _finished(job: NewJob, encryption: Encryption | None, *, has_own_id: bool) -> NewJob:
    """The job with its fingerprint, and encrypted."""
    if encryption is None:
        if has_own_id:
            return msgspec.structs.replace(job, fingerprint=fingerprint(job))
        return job
    printed = encryption.fingerprint(content_of(job)) if has_own_id else ""
    metadata = job.metadata
    if job.unique is not None:
        # Another job may come to carry this payload.
        own = msgspec.json.decode(job.metadata, type=dict[str, str])
        metadata = _strings("metadata", {**own, ORIGIN: origin_of(job.id, job.kind)})
    payload = encryption.encrypt(job.payload, job_id=job.id, kind=job.kind, part=Part.PAYLOAD)
    return msgspec.structs.replace(job, fingerprint=printed, metadata=metadata, payload=payload)


def prepare_many(
    requests: Iterable[EnqueueRequest],
    registry: HandlerRegistry | None = None,
    router: Router | None = None,
    elsewhere: Elsewhere | None = None,
    encryption: Encryption | None = None,
    *,
    judge: Judged | None = None,
) -> tuple[NewJob, ...]:
    """Prepare several requests as :func:`prepare` does. Of a request that differs from the last
    in the payload alone, only the payload is looked at."""
    jobs: list[NewJob] = []
    told: tuple[Any, ...] | None = None
    names = handler = like = own = None
    defaults = _NO_DEFAULTS
    for request in requests:
        check_request(request)
        asked = _asked(request)
        # The very same values, for True equals 1. And dictionaries may have changed meanwhile.
        is_like = told and _named(request) == names and all(map(is_, asked, told))
        if like is not None and is_like and not (request.metadata or request.trace):
            job = msgspec.structs.replace(like, id=new_job_id(), payload=_payload(request, handler))
        else:
            handler, defaults = _known_of(request, registry)
            own = defaults.encryption or encryption
            job = like = _unencrypted(request, handler, defaults, router, elsewhere)
            told = asked if _is_simple(request, router, defaults) else None
            names = _named(request)
        if judge is not None:
            job = judge(job)
        if own is not None or request.id is not None:
            job = _finished(job, own, has_own_id=request.id is not None)
        spread = defaults.spread if request.spread is UNSET else request.spread
        jobs.append(job if spread is None else spread_out(job, spread))
    return tuple(jobs)


def _is_simple(request: EnqueueRequest, router: Router | None, defaults: HandlerOptions) -> bool:
    """True when the result holds for each request with the same options. A router may choose
    another queue each time, and a derived key follows the payload."""
    is_routed = router is not None and isinstance(request.queue, UnsetType)
    wish = wish_of(request, defaults)
    if wish is not None and wish.by:
        return False
    if defaults.sequence or (defaults.concurrency is not None and defaults.concurrency.key):
        return False
    return (
        not (request.id or request.after or request.tags or request.metadata or request.trace)
        and not is_routed
    )


def _metadata(request: EnqueueRequest, defaults: HandlerOptions) -> str:
    given = request.metadata or {}
    text = _strings("metadata", given) if given else "{}"
    ours = [key for key in given if key.startswith(_OURS) and not isinstance(key, OurKey)]
    if ours:
        problem = f"has {', '.join(map(repr, ours[:4]))}: forge_jobs alone writes keys like these"
        fix = "leave them out of a copy of a job's metadata: "
        fix += f'{{key: metadata[key] for key in metadata if not key.startswith("{_OURS}")}}'
        raise InvalidInput("metadata", problem, fix)
    return _strings("metadata", {**given, SECRETS: defaults.secrets}) if defaults.secrets else text


def _payload(request: EnqueueRequest, handler: "Handler[..., Any] | None") -> str:
    payload = request.payload
    if isinstance(payload, CheckedJson):
        return str(payload)
    text = encode_json("payload", payload) if type(payload) is dict else _payload_text(payload)
    if handler is not None:
        handler.signature.check(text)
    return text


def _payload_text(payload: object) -> str:
    if isinstance(payload, str):
        check_json_text("payload", payload)
        if not payload.lstrip().startswith("{"):
            raise InvalidInput("payload", "is not a JSON object", "give the arguments by name")
        return payload
    if not isinstance(payload, Mapping):
        raise InvalidInput("payload", f"is {a_type(payload)}", "give a mapping of argument names")
    return encode_json("payload", payload)


def check_request(value: object) -> None:
    """Refuse what is no request.

    :raises InvalidInput: says how a request is made
    """
    if isinstance(value, EnqueueRequest):
        return
    problem, fix = f"is {a_type(value)}", 'EnqueueRequest("kind", {...})'
    name = getattr(value, "__name__", "handler")
    if inspect.iscoroutine(value):
        value.close()
        problem = f"is what a call of {name}(...) returned"
        fix = f"{name}.request(...)"
    elif hasattr(value, "request") and hasattr(value, "kind"):
        problem, fix = f"is the handler {name} itself", f"{name}.request(...)"
    elif inspect.ismethod(value) and name == "request":
        problem, fix = "is the method request itself", "what it returns, as handler.request(...)"
    raise InvalidInput("request", problem, f"give {fix}, with the arguments of the job")


def check_requests(requests: object) -> None:
    """Refuse what is no list of requests.

    :raises InvalidInput: says what to give
    """
    if isinstance(requests, EnqueueRequest | str | Mapping) or not isinstance(requests, Iterable):
        fix = "give a list of requests; enqueue takes a single one"
        raise InvalidInput("requests", f"is {a_type(requests)}", fix)


def _queue(
    request: EnqueueRequest,
    kind: str,
    defaults: HandlerOptions,
    router: Router | None,
    elsewhere: Elsewhere | None,
) -> str:
    if not isinstance(request.queue, UnsetType):
        queue = check_queue("queue", request.queue)
        if elsewhere is not None:
            elsewhere.note_named(kind, queue)
        return queue
    if defaults.queue is not None:
        return defaults.queue
    published = None if elsewhere is None else elsewhere.queue_of(kind)
    if published is not None:
        return published
    routed = router(kind) if router is not None else None
    if routed is not None:
        return check_queue("queue", routed)
    if elsewhere is not None:
        elsewhere.note_default(kind, DEFAULT_QUEUE)
    return DEFAULT_QUEUE


def _due(
    run_at: datetime | None, delay: timedelta | float | None
) -> tuple[datetime | None, timedelta | None]:
    if run_at is None and delay is None:
        return None, None
    if run_at is not None and delay is not None:
        raise InvalidInput("run_at", "is given together with delay", "give one of them")
    if delay is not None:
        return None, check_duration("delay", delay)
    return _aware("run_at", run_at), None


def _aware(field: str, value: object) -> datetime | None:
    if value is None:
        return None
    fix = "give an aware datetime, such as datetime(2030, 1, 31, tzinfo=UTC)"
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    if value.utcoffset() is None:
        raise InvalidInput(field, "is naive", fix)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(field, f"is {value}", "give an instant that exists in UTC") from None


def _positive(field: str, value: timedelta | float | None) -> timedelta | None:
    return None if value is None else check_duration(field, value, above_zero=True)


def _after(parents: Sequence[str | After]) -> tuple[After, ...]:
    if isinstance(parents, str | After) or not isinstance(parents, Iterable):
        raise InvalidInput("after", f"is {a_type(parents)}", "give a list of job ids")
    edges: dict[str, After] = {}
    for parent in parents:
        edge = parent if isinstance(parent, After) else After(check_job_id(parent, "after"))
        if edge.on_failure not in _ON_FAILURE:
            problem = f"has on_failure {edge.on_failure!r}"
            raise InvalidInput("after", problem, f"give one of {_ON_FAILURE}")
        edge = After(check_job_id(edge.job_id, "after"), edge.on_failure)
        if edges.setdefault(edge.job_id, edge) != edge:
            raise InvalidInput("after", f"names {edge.job_id} twice", "name each parent once")
    if len(edges) > MAX_PARENTS:
        raise InvalidInput("after", f"names {len(edges)} parents", f"give at most {MAX_PARENTS}")
    return tuple(edges.values())


def _strings(field: str, value: object) -> str:
    fix = "give a mapping of strings to strings"
    if not isinstance(value, Mapping):
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidInput(f"{field}.{key}", f"is {a_type(text)}", fix)
    return encode_json(field, {str(key): text for key, text in value.items()}, MAX_METADATA_BYTES)
