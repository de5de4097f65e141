"""Programs in a terminal of their own, and programs without one."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forge_jobs
from tests.support.waiting import OF_PROCESSES, wait_until

_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78])")
# The package of this process, which need not be the one of the working directory.
COMMAND = (sys.executable, "-P", "-m", "forge_jobs")
PACKAGES = str(Path(forge_jobs.__file__).parents[1])


class Program:
    """A running ``forge-jobs`` command, and what that one has written."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: int) -> None:
        self.process = process
        self._output = output
        self.raw = ""
        """All that came, with the control sequences."""

    @property
    def text(self) -> str:
        """All that came, without the sequences that colour and place text."""
        self._take()
        return _SEQUENCE.sub("", self.raw)

    @property
    def frame(self) -> str:
        """The screen as drawn last."""
        self._take()
        return _SEQUENCE.sub("", self.raw.rpartition("\x1b[H")[2])

    async def shows(self, text: str) -> str:
        """Wait until the output holds ``text``, and return all of it."""
        await wait_until(
            lambda: text in self.text or self.process.poll() is not None,
            description=f"{text!r} is shown",
            timeout=OF_PROCESSES,
        )
        assert text in self.text, self.text
        return self.text

    async def frame_shows(self, text: str) -> str:
        """Wait until the screen, drawn anew, holds ``text``. Return the screen."""
        await wait_until(
            lambda: text in self.frame, description=f"{text!r} is drawn", timeout=OF_PROCESSES
        )
        return self.frame

    def forget(self) -> None:
        """Drop what came so far."""
        self._take()
        self.raw = ""

    def press(self, keys: str) -> None:
        """Type keys. Only for a terminal."""
        os.write(self._output, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size. The system tells the program."""
        _set_size(self._output, rows, columns)

    @property
    def echoes(self) -> bool:
        """Return whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._output)[3] & termios.ECHO)

    def let_lines_be_edited(self) -> None:
        """Set the terminal to lines with an echo, whatever the program has chosen."""
        found = termios.tcgetattr(self._output)
        found[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._output, termios.TCSANOW, found)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def stops(self) -> None:
        """Send what Ctrl-Z sends, and wait until the system has stopped the program."""
        self.send(signal.SIGTSTP)
        stat = Path(f"/proc/{self.process.pid}/stat")

        def is_stopped() -> bool:
            self._take()
            return stat.read_text().rpartition(")")[2].split()[0] == "T"

        await wait_until(is_stopped, description="the program stops", timeout=OF_PROCESSES)
        self._take()

    async def ends(self) -> int:
        """Wait for the end, and return the exit code."""

        def look() -> bool:
            self._take()
            return self.process.poll() is not None

        await wait_until(look, description="the program has ended", timeout=OF_PROCESSES)
        self._take()
        assert self.process.returncode is not None
        return self.process.returncode

    def _take(self) -> None:
        while select.select([self._output], [], [], 0)[0]:
            try:
                came = os.read(self._output, 65_536)
            except OSError:  # the other end of a terminal is closed
                return
            if not came:
                return
            self.raw += came.decode("utf-8", "replace")


def _set_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _take_control() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def in_terminal(
    *args: str, rows: int = 30, columns: int = 120, can_stop: bool = False, **env: str
) -> Iterator[Program]:
    """Run ``forge-jobs`` in a terminal of this size, and end the program behind the test.

    :param can_stop: the program is a job of this process, as of a shell, so Ctrl-Z stops the
        program. The keys themselves raise no signal then
    """
    ours, theirs = pty.openpty()
    _set_size(theirs, rows, columns)
    try:
        streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        # Without a controlling terminal no signal says that the size has changed.
        if can_stop:
            streams |= {"start_new_session": False, "process_group": 0}
        else:
            streams["preexec_fn"] = _take_control
        with _started(args, env, **streams) as process:
            yield Program(process, ours)
    finally:
        os.close(theirs)
        os.close(ours)


@contextlib.contextmanager
def in_pipe(*args: str, **env: str) -> Iterator[Program]:
    """Run ``forge-jobs`` with stdout and stderr in one pipe."""
    ours, theirs = os.pipe()
    try:
        streams = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
        with _started(args, env, **streams) as process:
            yield Program(process, ours)
    finally:
        os.close(theirs)
        os.close(ours)


@contextlib.contextmanager
def _started(
    args: tuple[str, ...], env: dict[str, str], **streams: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    given = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    process = subprocess.Popen(
        (*COMMAND, *args),
        env={**given, "TERM": "xterm-256color", "PYTHONPATH": PACKAGES, **env},
        **{"start_new_session": True, **streams},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
