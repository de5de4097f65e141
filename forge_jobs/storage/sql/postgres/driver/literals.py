"""Values as literals, for statements that go to the server in one message with others.

Such a message has no parameters. The texts are escaped in a way that no setting of the session
changes.
"""

from collections.abc import Iterable, Sequence

_MOST_LETTERS = 8_000
"""Values longer than that are sent as parameters: the server would read them letter by letter."""

_NUL = "\0"


def fit_as_literals(values: Iterable[object]) -> bool:
    """Return whether the values can be literals: no NUL, which would end the message, and short."""
    texts = [value for value in values if isinstance(value, str)]
    return sum(map(len, texts)) <= _MOST_LETTERS and not any(_NUL in each for each in texts)


def literals(values: Sequence[str | int | bool | None]) -> str:
    """Return the values as a list of literals, in their order."""
    return ", ".join(map(_literal, values))


def _literal(value: str | int | bool | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(int(value))
    if not isinstance(value, str):
        raise TypeError(f"no literal for a {type(value).__name__}")
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
