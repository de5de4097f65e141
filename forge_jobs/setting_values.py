"""Values of settings, as texts of variables and values of TOML give them."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from fractions import Fraction

from forge_jobs.durations import DURATION_FIX, parse_duration
from forge_jobs.errors import a_type
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.processes import check_concurrency
from forge_jobs.model.queues import MAX_WORKERS_LIMIT, RateLimit

MAX_PROCESSES = 1_000
PREFIX_ROUTER = "prefix"  # stands for ``prefix_router()``

_UNITS = {"B": 1} | {
    f"{letter}{infix}B": base**power
    for power, letter in enumerate("KMGT", start=1)
    for infix, base in (("", 1_000), ("I", 1_024))
}
_WITH_COLON = re.compile(r"(.+):(\d+)", re.ASCII)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?((?:[KMGT]i?)?B)?", re.ASCII | re.IGNORECASE)


def as_duration(value: object) -> timedelta:
    """Read a duration from a text, or from a number of seconds.

    :raises ValueError: the value is something else
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"is {a_type(value)}; {DURATION_FIX}")
    return parse_duration(value.strip() if isinstance(value, str) else f"{value}")


def as_count(value: object) -> int:
    """Read a whole number from 0.

    :raises ValueError: the value is something else
    """
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    raise ValueError(f"{str(value)[:40]!r} is not a whole number; give one like 3")


def as_bytes(value: object) -> int:
    """Read a number of bytes from ``512MiB``, ``1.5GB`` or ``800000000``.

    :raises ValueError: the text is no size, or a size of zero
    """
    found = _SIZE.fullmatch(str(value).strip())
    size = int(Fraction(found[1]) * _UNITS[(found[2] or "B").upper()]) if found else 0
    if not size or isinstance(value, bool):
        raise ValueError(f"{str(value)[:40]!r} is not a size; give one like 512MiB or 2GB")
    return size


def as_number(value: object) -> int:
    """Read a whole number from 1.

    :raises ValueError: the value is something else
    """
    if not (count := as_count(value)):
        raise ValueError("is 0; give 1 or more")
    return count


def as_processes(value: object) -> int:
    """Read a number of processes.

    :raises ValueError: the value is something else
    """
    count = as_count(value)
    if not 1 <= count <= MAX_PROCESSES:
        raise ValueError(f"is {count}; give 1 to {MAX_PROCESSES}")
    return count


def as_concurrency(value: object) -> int:
    """Read a number of handlers that run at once.

    :raises ValueError: the value is something else
    """
    return check_concurrency(as_count(value))


def as_text(value: object) -> str:
    """Read a text.

    :raises ValueError: the value is something else
    """
    if not isinstance(value, str):
        raise ValueError(f"is {a_type(value)}; give a text")
    return value.strip()


def as_queue(value: object) -> str:
    """Read a name with the rules of queue names.

    :raises ValueError: the value is something else
    """
    return check_queue("name", as_text(value))


def as_names(value: object) -> tuple[str, ...]:
    """Read names, as ``"password,card.number"`` or a list of texts.

    :raises ValueError: the value is something else
    """
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if isinstance(value, list):
        return tuple(as_text(each) for each in value)
    raise ValueError(f"is {a_type(value)}; give names like password,card.number")


def as_router(value: object) -> str:
    """Read the reference of a router.

    :raises ValueError: the value is something else
    """
    text = as_text(value)
    if text != PREFIX_ROUTER and not all(text.partition(":")):
        raise ValueError(f"{text[:80]!r} is no router; give {PREFIX_ROUTER} or module:attribute")
    return text


def as_choice(*choices: str) -> Callable[[object], str]:
    """Return a reader of one of these words, in any case."""
    by_fold = {choice.casefold(): choice for choice in choices}

    def read(value: object) -> str:
        choice = by_fold.get(as_text(value).casefold())
        if choice is None:
            raise ValueError(f"{str(value)[:40]!r} is not known; give {' or '.join(choices)}")
        return choice

    return read


def as_flag(value: object) -> bool:
    """Read a yes or a no.

    :raises ValueError: the value is something else
    """
    word = str(value).strip().casefold()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError(f"{str(value)[:40]!r} is neither yes nor no; give 1 or 0")


def read_queues(value: object) -> dict[str, int | None]:
    """Queues from ``"gh,slack=2"``, from a list of such items, or from a table of numbers.

    In a text ``gh:3`` is refused: other programs write workers of a queue so. A queue of that name
    is given with the number behind, ``gh:3=2``, or in a list or table.

    :raises ValueError: a name or a number is wrong, or a queue is named twice
    """
    if isinstance(value, Mapping):
        return {check_queue("queue", name): _as_workers(count) for name, count in value.items()}
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError("is neither a text nor a list; give names like gh,slack=2")
    queues: dict[str, int | None] = {}
    for item in items:
        text = as_text(item)
        name, separator, count = text.rpartition("=")
        name = check_queue("queue", (name if separator else count).strip())
        if isinstance(value, str) and not separator and (meant := _WITH_COLON.fullmatch(name)):
            raise ValueError(
                f"{name!r} is read as the name of a queue; give {meant[1]}={meant[2]} for "
                f"{meant[2]} workers, or {name}=N where the queue is named so"
            )
        if name in queues:
            raise ValueError(f"names the queue {name!r} twice; name each once")
        queues[name] = _as_workers(count) if separator else None
    return queues


def read_rate_limits(value: object) -> dict[str, RateLimit]:
    """Rate limits from ``"smtp=100/1m"`` or from a table.

    :raises ValueError: a name or a size is wrong, or a limit is named twice
    """
    if isinstance(value, str):
        pairs = [item.rpartition("=")[::2] for item in value.split(",")]
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        raise ValueError("is neither a text nor a table; give limits like smtp=100/1m")
    limits: dict[str, RateLimit] = {}
    for scope, text in pairs:
        name = check_name("rate_limits", scope.strip())
        if name in limits:
            raise ValueError(f"names the limit {name!r} twice; name each once")
        count, separator, period = as_text(text).partition("/")
        if not separator:
            raise ValueError(f"{text[:40]!r} is not a limit; give a count per duration: 100/1m")
        limits[name] = RateLimit(as_count(count), parse_duration(period.strip()))
    return limits


def _as_workers(value: object) -> int:
    count = as_count(value)
    if count > MAX_WORKERS_LIMIT:
        raise ValueError(f"{count} workers are too many; give at most {MAX_WORKERS_LIMIT}")
    return count
