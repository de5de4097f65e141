"""Texts of the log and of health about a store that fails a call."""

from collections.abc import Iterable

from forge_jobs.errors import StorageRefused


def failure_of(error: Exception) -> str:
    """Name the failure: refused, or no answer."""
    return "the store refuses" if isinstance(error, StorageRefused) else "the store does not answer"


def health_text_of(error: Exception, of: str = "") -> str:
    """Name the failure for health, with the error that an operator has to mend.

    :param of: the caller
    """
    words = f"{failure_of(error)} {of}".rstrip()
    return f"{words}: {error}" if isinstance(error, StorageRefused) else words


_MOST = 5


def by_reason(kept: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return a line for each of the first reasons: the first item, how many more, and the reason.

    :param kept: items and reasons
    """
    found: dict[str, list[str]] = {}
    for what, reason in kept:
        found.setdefault(reason, []).append(what)
    return tuple(
        whats[0] + (f" and {len(whats) - 1} more" if len(whats) > 1 else "") + f": {reason}"
        for reason, whats in list(found.items())[:_MOST]
    )
