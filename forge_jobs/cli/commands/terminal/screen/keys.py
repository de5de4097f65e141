"""Keys of the terminal, one by one and unseen."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator

_NAMED = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\b": "backspace",
}


def keys_in(text: str) -> Iterator[str]:
    """Yield the keys that stand for this input: letters, and names of others.

    Sequences of keys without a meaning here are left out as a whole.
    """
    while text:
        if text[0] == "\x1b" and len(text) > 1 and text[1] in "[O":
            end = next(
                (at for at in range(2, len(text)) if text[at].isalpha() or text[at] == "~"),
                len(text),
            )
            sequence, text = text[: end + 1], text[end + 1 :]
            if sequence in _NAMED:
                yield _NAMED[sequence]
            continue
        letter, text = text[0], text[1:]
        if letter in _NAMED:
            yield _NAMED[letter]
        elif letter.isprintable():
            yield letter


class Keyboard:
    """The keys of a terminal.

    :param descriptor: to read from
    """

    def __init__(self, descriptor: int) -> None:
        import termios

        self.descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)

    def hide(self) -> None:
        """Let keys come at once and without an echo, from now on. Those typed before are kept.

        A process in the background is stopped here, until the terminal belongs to the process.
        """
        import termios
        import tty

        # Without the second argument keys that came since the last read would be dropped.
        tty.setcbreak(self.descriptor, termios.TCSADRAIN)

    def show(self) -> None:
        """Let keys come as before."""
        import termios

        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)


@contextlib.contextmanager
def unseen_keys() -> Iterator[Keyboard | None]:
    """Let keys come at once and without an echo, until the context ends.

    None: stdin is no terminal, and no key will come.
    """
    try:
        descriptor = sys.stdin.fileno()
        is_terminal = os.isatty(descriptor)
    except (AttributeError, OSError, ValueError):
        is_terminal = False
    if not is_terminal:
        yield None
        return
    keyboard = Keyboard(descriptor)
    try:
        keyboard.hide()
        yield keyboard
    finally:
        keyboard.show()


async def pressed(descriptor: int) -> AsyncIterator[str]:
    """Yield keys as they come, until the terminal is closed."""
    import anyio

    while True:
        await anyio.wait_readable(descriptor)
        try:
            came = os.read(descriptor, 1_024)
        except OSError:
            return
        if not came:
            return
        for key in keys_in(came.decode("utf-8", "replace")):
            yield key
