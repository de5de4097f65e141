"""Options that requests and handlers share, checked the same way."""

from collections.abc import Iterable, Mapping
from typing import get_args

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.options import Executor
from forge_jobs.model.jobs import MAX_MAX_ATTEMPTS, MAX_PRIORITY, MIN_PRIORITY
from forge_jobs.model.names import check_name

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
