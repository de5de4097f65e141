"""Options of requests and handlers, checked the same way."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from forge_jobs.errors import InvalidInput, RegistrationError, a_type
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.limits.concurrency import check_limit
from forge_jobs.handlers.limits.keys import check_fields
from forge_jobs.handlers.limits.rates import check_rate
from forge_jobs.handlers.limits.sequences import check_sequence
from forge_jobs.handlers.options import (
    AroundEnqueue,
    Executor,
    HandlerOptions,
    JobOptions,
    check_option_names,
)
from forge_jobs.handlers.outcomes import check_arguments
from forge_jobs.handlers.spreading import check_spread
from forge_jobs.handlers.unique_keys import check_unique
from forge_jobs.model.jobs import MAX_MAX_ATTEMPTS, MAX_PRIORITY, MIN_PRIORITY
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.policy.backoff import check_retry
from forge_jobs.privacy.encryption import Encryption

MAX_TAGS = 32
PROCESS_OPTIONS = ("max_memory", "max_runs_per_child")
_PRIORITY_FIX = f"give an integer from {MIN_PRIORITY} to {MAX_PRIORITY}, lower first"
_ATTEMPTS_FIX = f"give 1 to {MAX_MAX_ATTEMPTS}, or None for no bound"


def check_priority(value: object) -> int:
    """``value`` as a priority, lower first.

    :raises InvalidInput: the value is no integer, or out of bounds
    """
    if type(value) is not int:
        raise InvalidInput("priority", f"is {a_type(value)}", _PRIORITY_FIX)
    if not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidInput("priority", f"is {value}", _PRIORITY_FIX)
    return value


def check_attempts(value: object) -> int | None:
    """``value`` as a bound of attempts, None for no bound.

    :raises InvalidInput: the value is no integer, or out of bounds
    """
    if value is None:
        return None
    if type(value) is not int:
        raise InvalidInput("max_attempts", f"is {a_type(value)}", _ATTEMPTS_FIX)
    if not 1 <= value <= MAX_MAX_ATTEMPTS:
        raise InvalidInput("max_attempts", f"is {value}", _ATTEMPTS_FIX)
    return value


def check_tags(value: object) -> tuple[str, ...]:
    """``value`` as tags, each once, in the order given.

    :raises InvalidInput: they are too many, or one is no name
    """
    fix = f"give a sequence of at most {MAX_TAGS} names"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput("tags", f"is {a_type(value)}", fix)
    tags = tuple(dict.fromkeys(check_name("tags", tag) for tag in value))
    if len(tags) > MAX_TAGS:
        raise InvalidInput("tags", f"holds {len(tags)} tags", fix)
    return tags


def check_flag(field: str, value: object) -> bool:
    """``value``, held to be True or False.

    :raises InvalidInput: names the field
    """
    if not isinstance(value, bool):
        raise InvalidInput(field, f"is {a_type(value)}", "give True or False")
    return value


def check_executor(value: object, needs_process: Mapping[str, int | None]) -> None:
    """Refuse what is no executor, and options of processes without a process.

    :raises InvalidInput: names the option
    """
    known = get_args(Executor)
    if value is not None and value not in known:
        names = " or ".join(repr(each) for each in known)
        raise InvalidInput("executor", f"is {value!r:.80}", f"give {names}, or nothing")
    for name, given in needs_process.items():
        if given is None:
            continue
        if type(given) is not int:
            raise InvalidInput(name, f"is {a_type(given)}", "give a whole number")
        if given < 1:
            raise InvalidInput(name, f"is {given}", "give at least 1")
        if value != "process":
            raise InvalidInput(name, "is given without a process", 'add executor="process"')


def named(kind: object) -> str:
    """Return the kind.

    :raises RegistrationError: the kind is no name
    """
    try:
        return check_name("kind", kind)
    except InvalidInput as error:
        raise RegistrationError(str(error)) from None


def with_known_fields(handler: Handler[..., Any]) -> Handler[..., Any]:
    """Return the handler, whose unique key, rate, limit, sequence and seed name existing arguments.

    :raises RegistrationError: names the field. A handler has a seed or a unique key, not both
    """
    if handler.options.seed is not None:
        try:
            handler.request(**handler.options.seed)
        except InvalidInput as error:
            raise RegistrationError(f"{handler.kind}: seed: {error}") from None
        if handler.options.unique is not None:
            raise RegistrationError(
                f"{handler.kind}: seed: is given together with unique, and another job with the key"
                " would take the place of the seeded one; leave out one of them: the id of a seeded"
                " job already makes sure that there is one"
            )
    unique, known = handler.options.unique, handler.signature.struct.__struct_fields__
    rate, limit, sequence = (
        getattr(handler.options, name) for name in ("rate", "concurrency", "sequence")
    )
    for field, key in (
        ("rate.key", "" if rate is None else rate.key),
        ("concurrency.key", "" if limit is None else limit.key),
        ("sequence.key", "" if sequence is None else sequence.key),
    ):
        try:
            check_fields(field, key, known)
        except InvalidInput as error:
            raise RegistrationError(f"{handler.kind}: {error}") from None
    for name in () if unique is None else unique.by:
        if name not in known:
            raise RegistrationError(
                f"{handler.kind}: unique.by names {name!r}, which is no argument of the handler;"
                f" give some of {', '.join(known) or 'its arguments, once there are any'}"
            )
    return handler


def check_aliases(value: object) -> tuple[str, ...]:
    """``value`` as further kinds.

    :raises InvalidInput: they are no sequence of names
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput("aliases", f"is {a_type(value)}", "give a sequence of kinds")
    return tuple(check_name("kind", each) for each in value)


def checked_options(
    options: JobOptions,
    encryption: Encryption | None,
    enqueue_middleware: tuple[AroundEnqueue, ...],
) -> HandlerOptions:
    """The options of ``job(kind, **options)``. Those of the handler itself are left out.

    :param encryption: of the registry
    :param enqueue_middleware: of the registry and of the handler
    :raises InvalidInput: an option is wrong, or there is no such option
    """
    check_option_names(options, JobOptions.__annotations__, "job")
    values = {name: _CHECKS[name](value) for name, value in options.items() if name in _CHECKS}
    made = HandlerOptions(encryption=encryption, enqueue_middleware=enqueue_middleware, **values)
    check_executor(made.executor, {name: getattr(made, name) for name in PROCESS_OPTIONS})
    return made


def _queue(value: object) -> str | None:
    return None if value is None else check_queue("queue", value)


def _timeout(value: object) -> Any:
    return None if value is None else check_duration("timeout", value, above_zero=True)


def _retry(value: Any) -> Any:
    if value is not None:
        check_retry("retry", value)
    return value


def _errors(field: str, none: tuple[type[BaseException], ...] | None) -> Callable[[Any], Any]:
    def check(types: Any) -> tuple[type[BaseException], ...] | None:
        if types is None:
            return none
        is_one = isinstance(types, type) or not isinstance(types, Iterable)
        found: tuple[Any, ...] = (types,) if is_one else tuple(types)
        for each in found:
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise InvalidInput(field, f"holds {each!r:.80}", "give exception types")
        return found

    return check


def _bound(field: str) -> Callable[[object], int | None]:
    def check(value: object) -> int | None:
        if value is None:
            return None
        if type(value) is not int:
            raise InvalidInput(field, f"is {a_type(value)}", "give a whole number, at least 1")
        if value < 1:
            raise InvalidInput(field, f"is {value}", "give at least 1")
        return value

    return check


def _seed(value: Any) -> Mapping[str, Any] | None:
    if value is None or value is False:
        return None
    return {} if value is True else check_arguments("seed", value)


def _as_given(value: Any) -> Any:
    return value


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "queue": _queue,
    "priority": check_priority,
    "max_attempts": check_attempts,
    "timeout": _timeout,
    "retry": _retry,
    "retry_on": _errors("retry_on", none=None),
    "never_retry_on": _errors("never_retry_on", none=()),
    "tags": check_tags,
    "keep_result": lambda value: check_flag("keep_result", value),
    "max_crashes": _bound("max_crashes"),
    "max_snoozes": _bound("max_snoozes"),
    "executor": _as_given,
    "max_memory": _as_given,
    "max_runs_per_child": _as_given,
    "unique": lambda value: value and check_unique(value),
    "rate": lambda value: None if value is None else check_rate(value),
    "concurrency": lambda value: None if value is None else check_limit(value),
    "sequence": lambda value: None if value is None else check_sequence(value),
    "seed": _seed,
    "spread": lambda value: None if value is None else check_spread(value),
}
"""How each option of :class:`JobOptions` is checked that jobs get from their handler."""
