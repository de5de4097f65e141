"""What the log and the health of a pod say of a store that does not do what it is asked."""

from collections.abc import Iterable

from forge_jobs.errors import StorageRefused


def failure_of(error: Exception) -> str:
    """What the store does."""
    return "the store refuses" if isinstance(error, StorageRefused) else "the store does not answer"


def health_text_of(error: Exception, of: str = "") -> str:
    """The same for health, which names what somebody has to mend.

    :param of: whose call it was
    """
    words = f"{failure_of(error)} {of}".rstrip()
    return f"{words}: {error}" if isinstance(error, StorageRefused) else words


_MOST = 5


def by_reason(kept: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """A line for each of the first reasons, with the first thing kept for it and how many more.

    :param kept: what is kept, and why
    """
    found: dict[str, list[str]] = {}
    for what, reason in kept:
        found.setdefault(reason, []).append(what)
    return tuple(
        whats[0] + (f" and {len(whats) - 1} more" if len(whats) > 1 else "") + f": {reason}"
        for reason, whats in list(found.items())[:_MOST]
    )
