"""Unique keys: what a key in each mode does, and the places of a key.

A key has a place for the job that holds the key, and a place for the follow-up of that job. The
place is the stored text of a job's key, and at most one active job has each place. A name has no
control character, so no key of a user's is the text of a place of another key.
"""

from datetime import timedelta
from typing import Literal, get_args

UniqueMode = Literal["keep", "replace", "error", "cooldown", "debounce", "keep-last"]
MODES: tuple[str, ...] = get_args(UniqueMode)

REPLACING = frozenset({"replace", "debounce", "keep-last"})
"""Modes in which a request may change a job that waits."""

FOLLOWING = frozenset({"debounce", "keep-last"})
"""Modes in which a request that meets a running job is kept as that job's follow-up."""

WITH_WINDOW = frozenset({"cooldown", "debounce"})

REPLACEMENT_KEPT = timedelta(minutes=10)
"""How long a request is known whose content another job has taken, so that a repeat of the request
changes nothing."""

REPLACED = "="
"""The fingerprint of a job whose content another request has replaced, where the job had none."""

_SEPARATOR = "\x1f"
_FOLLOWING_PLACES = (f"{_SEPARATOR}1", f"{_SEPARATOR}2")


def length(value: timedelta | float | None) -> timedelta:
    """Return a window that has been checked."""
    return value if isinstance(value, timedelta) else timedelta(seconds=value or 0)


def places_of(key: str) -> tuple[str, ...]:
    """Return every place of a key: the plain one first."""
    return (key, *(key + place for place in _FOLLOWING_PLACES))


def key_of(place: str) -> str:
    """Return the key of a place."""
    return place.partition(_SEPARATOR)[0]


def is_following(place: str | None) -> bool:
    """Return whether the job with this place was stored as a follow-up."""
    return place is not None and _SEPARATOR in place


def place_after(place: str) -> str:
    """Return the place of the follow-up of a job."""
    first, second = _FOLLOWING_PLACES
    return key_of(place) + (second if place.endswith(first) else first)
