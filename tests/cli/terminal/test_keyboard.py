"""The keyboard of ``forge-jobs top``, at a terminal and without a program."""

import os
import pty
import select
from collections.abc import Iterator

import pytest

from forge_jobs.cli.commands.terminal.screen.keys import Keyboard


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal: of who types, and of the program."""
    typist, terminal = pty.openpty()
    yield typist, terminal
    os.close(typist)
    os.close(terminal)


def _has_keys(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 5)[0])


def test_keys_are_kept_when_the_terminal_is_set_once_more(ends: tuple[int, int]) -> None:
    # As behind a stop, where both what was stopped and what hears of its end do this.
    typist, terminal = ends
    keyboard = Keyboard(terminal)
    keyboard.hide()
    os.write(typist, b"q")
    assert _has_keys(terminal)
    keyboard.hide()
    assert _has_keys(terminal)
    assert os.read(terminal, 10) == b"q"


def test_keys_of_a_line_that_was_begun_are_kept(ends: tuple[int, int]) -> None:
    typist, terminal = ends
    keyboard = Keyboard(terminal)
    os.write(typist, b"q")
    assert _has_keys(typist)  # the echo
    keyboard.hide()
    assert _has_keys(terminal)
    assert os.read(terminal, 10) == b"q"
