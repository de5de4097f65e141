"""Options of requests and handlers, checked the same way."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from forge_jobs.errors import InvalidInput, RegistrationError, a_type
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.options import Executor, HandlerOptions
from forge_jobs.handlers.spreading import check_spread
from forge_jobs.handlers.unique_keys import check_unique
from forge_jobs.model.jobs import MAX_MAX_ATTEMPTS, MAX_PRIORITY, MIN_PRIORITY
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.policy.backoff import check_retry

Errors = type[BaseException] | Iterable[type[BaseException]]

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


def options_of(kind: str, *, tags: Iterable[str], timeout: Any, **rest: Any) -> HandlerOptions:
    """Return what ``job`` is given as options, each value checked.

    :raises RegistrationError: names the kind and the option
    """
    named(kind)
    try:
        if rest["queue"] is not None:
            check_queue("queue", rest["queue"])
        if rest["retry"] is not None:
            check_retry("retry", rest["retry"])
        check_priority(rest["priority"])
        check_attempts(rest["max_attempts"])
        for bound in ("max_crashes", "max_snoozes"):
            if rest[bound] is not None and rest[bound] < 1:
                raise InvalidInput(bound, f"is {rest[bound]}", "give at least 1")
        check_executor(rest["executor"], {name: rest[name] for name in PROCESS_OPTIONS})
        rest["unique"] = rest["unique"] and check_unique(rest["unique"])
        rest["spread"] = None if rest["spread"] is None else check_spread(rest["spread"])
        limit = None if timeout is None else check_duration("timeout", timeout, above_zero=True)
        return HandlerOptions(tags=check_tags(tags), timeout=limit, **rest)
    except InvalidInput as error:
        raise RegistrationError(f"{kind}: {error}") from None


def with_known_fields(handler: Handler[..., Any]) -> Handler[..., Any]:
    """Return the handler, whose unique key is derived from fields that exist.

    :raises RegistrationError: names the field
    """
    unique, known = handler.options.unique, handler.signature.struct.__struct_fields__
    for name in () if unique is None else unique.by:
        if name not in known:
            raise RegistrationError(
                f"{handler.kind}: unique.by names {name!r}, which is no argument of the handler;"
                f" give some of {', '.join(known) or 'its arguments, once there are any'}"
            )
    return handler


def error_types(kind: str, field: str, types: Errors) -> tuple[type[BaseException], ...]:
    """Return exception types, given alone or as a list.

    :raises RegistrationError: one of them is none
    """
    found = (types,) if isinstance(types, type) else tuple(types)
    for each in found:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise RegistrationError(f"{kind}: {field} holds {each!r}; give exception types")
    return found
