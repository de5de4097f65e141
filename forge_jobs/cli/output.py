"""The output of commands: JSON documents, tables, and remarks."""

import json
import os
import sys
import unicodedata
from collections.abc import Sequence

import click

from forge_jobs.operating.documents import document

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def printable(text: str) -> str:
    """``text`` on one line, without control sequences for a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        " " if character in "\n\r\t" else "�" if _is_unprintable(character) else character
        for character in text
    )


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in _UNPRINTABLE


def is_terminal() -> bool:
    """True when people watch stdout. A closed one is no terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def can_draw() -> bool:
    """True when stdout is a terminal that can place text."""
    return is_terminal() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def emit_json(value: object) -> None:
    """Print one JSON document, on one line."""
    click.echo(json_line(value))


def json_line(value: object) -> str:
    """Return a JSON document. On a terminal escapes stand for characters that could steer it."""
    text = document(value).decode()
    if not is_terminal() or (text.isascii() and text.isprintable()):
        return text
    # All of them are within texts, where an escape means the same.
    return "".join(json.dumps(each)[1:-1] if _is_unprintable(each) else each for each in text)


def talk(text: str) -> None:
    """Tell people something that is not data."""
    click.echo(printable(text), err=True)


def emit_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, none: str) -> None:
    """Print rows under their columns, or as records on a terminal too narrow for that.

    :param none: said on stderr when there are no rows
    """
    if not rows:
        talk(none)
        return
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if is_terminal():
        _print_rich(columns, cells)
    else:
        _print_aligned([[column.upper() for column in columns], *cells])


def emit_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print named values, one per line. Empty ones are left out."""
    given = [(name, printable(str(value))) for name, value in fields if value not in ("", None)]
    _print_aligned([[f"{name}:", value] for name, value in given])


def _print_aligned(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))] if lines else []
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [_longest_word(column) for column in zip(columns, *rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > console.width:
        _print_records(columns, rows)
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, min_width=width)
    for row in rows:
        # Text, not str: a payload with [brackets] must not be read as markup.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _longest_word(cells: Sequence[str]) -> int:
    # Narrower than this, an id would be cut.
    return max((len(word) for cell in cells for word in cell.split()), default=0)


def _print_records(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for at, row in enumerate(rows):
        if at:
            click.echo()
        emit_fields(list(zip(columns, row, strict=True)))
