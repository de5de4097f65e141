"""Texts cut to size: of handlers as every store can keep them, and of lines of the log."""

from collections.abc import Sequence

_CUT = "... "
_NAMED = 50
"""Ids or names that one line of the log has at most."""


def named(names: Sequence[str]) -> str:
    """Return the first ids or names, for a line of the log."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def clean_text(text: str, max_bytes: int, *, keep_end: bool = False) -> str:
    """Return ``text`` without what some store refuses, cut to size.

    NUL characters and lone surrogates become visible escapes.

    :param keep_end: cut at the beginning, because the last lines of a traceback say most
    """
    encoded = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    room = max_bytes - len(_CUT)
    if keep_end:
        return _CUT + encoded[-room:].decode("utf-8", "ignore")
    return encoded[:room].decode("utf-8", "ignore") + _CUT
