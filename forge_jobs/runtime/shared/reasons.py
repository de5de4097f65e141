"""Why things are kept back, in a few lines for people."""

from collections.abc import Iterable

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
