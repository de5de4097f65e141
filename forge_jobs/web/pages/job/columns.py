"""The columns of the list of jobs, as the address names them."""

from collections.abc import Iterable

from forge_jobs.errors import InvalidInput

KNOWN = (
    "kind", "queue", "status", "cause", "attempt", "priority", "since", "enqueued", "due",
    "started", "finished", "pod", "tags", "error",
)  # fmt: skip
"""All columns, in the order of the table. The id is always there."""

USUAL = ("kind", "queue", "status", "attempt", "since", "error")


def columns_of(given: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that an address asks for, the usual ones where none is named.

    :param given: values of the parameter, each a name or several with commas
    :raises InvalidInput: an unknown column
    """
    names = {name.strip() for text in given for name in text.split(",") if name.strip()}
    unknown = sorted(names - set(KNOWN))
    if unknown:
        raise InvalidInput("columns", f"has {unknown[0][:40]!r}", f"give {', '.join(KNOWN)}")
    return tuple(name for name in KNOWN if name in names) or USUAL
