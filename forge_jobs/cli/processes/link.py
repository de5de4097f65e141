"""The link of a worker process to the parent that started the process, and the stops.

The link is the process's stdin, a socket that both sides write to. Its end says that the parent is
gone.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from forge_jobs.cli.last_exit import LastExit
from forge_jobs.reports import reporter
from forge_jobs.runtime.pod.signals import StopRequest

logger = reporter(__name__)

STARTED, READY, FULL, LEAVES = b"b", b"r", b"f", b"l"
"""Said by the process: the code is loaded and a pod has started. The pod is able to claim. The
process has reached a limit and should be replaced. An operator has asked this pod to stop, and no
process is to follow."""

STOP, RETIRE = b"s", b"t"
"""Said by the parent: stop, and at each further time hurry. Claim nothing more, and end when the
running handlers have ended."""

_NOT_STARTED = 0
"""Exit code of a process that was stopped before the start of a pod."""


class ParentLink:
    """The process's side of the link. A thread listens, also while the event loop is blocked.

    :param end_process: called with an exit code when the parent asks for a stop before
        :meth:`on_stop`. The process holds nothing then
    """

    def __init__(self, end_process: Callable[[int], None] = os._exit) -> None:
        self.retires = threading.Event()
        """Set when the parent has started a successor of this process."""
        self._socket = _own_stdin()
        self._end_process = end_process
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        threading.Thread(target=self._listen, name="forge-jobs-parent", daemon=True).start()

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call ``stop``, in the thread of the link, each time that the parent asks for a stop."""
        with self._lock:
            self._stop = stop

    def say(self, word: bytes) -> None:
        """Tell the parent. A parent that is gone, or that does not listen, hears nothing."""
        with suppress(OSError):
            os.write(self._socket, word)

    def _listen(self) -> None:
        # Not through sys.stdin, whose lock, held by a thread that waits, aborts the
        # interpreter's end.
        asked = False
        while words := self._read():
            for word in (words[index : index + 1] for index in range(len(words))):
                if word == STOP:
                    asked = True
                    self._ask()
                elif word == RETIRE:
                    self.retires.set()
        if not asked:
            logger.info("the parent process is gone, so this worker process stops")
            self._ask()

    def _read(self) -> bytes:
        with suppress(OSError):
            return os.read(self._socket, 64)
        return b""

    def _ask(self) -> None:
        with self._lock:
            if self._stop is None:
                self._end_process(_NOT_STARTED)
            else:
                self._stop()


class StopLevels:
    """How urgently a process is asked to stop: by signals or by the parent, whichever asks more.

    A service manager may send a signal to every process of the service, and the parent passes the
    same stop on. The two together are one request, not a second one that hurries.

    :param request: hears of the first level as a drain and of each further one as a hurry
    """

    def __init__(self, request: StopRequest, last_exit: LastExit) -> None:
        self._request = request
        self._last_exit = last_exit
        self._loop = asyncio.get_running_loop()
        self._signals = 0
        self._asked = 0
        self._reached = 0

    @property
    def _level(self) -> int:
        return max(self._signals, self._asked)

    def signalled(self) -> None:
        """Count a stop signal. Called in the signal handler."""
        self._signals += 1
        self._last_exit.stop_asked(self._level)

    def asked(self) -> None:
        """Count a request of the parent. Called in the thread of the link."""
        self._asked += 1
        self._last_exit.stop_asked(self._level)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._follow_parent)

    def requested(self) -> None:
        """Note that an operator has asked this pod to stop. Called on the event loop.

        Together with the first signal, or the first request of the parent, one request.
        """
        self._asked = max(self._asked, 1)
        self._last_exit.stop_asked(self._level)
        self.follow()

    def _follow_parent(self) -> None:
        logger.info(
            "the parent process asks for a stop: %s",
            "the stop is under way already"
            if self._reached >= self._level
            else "handlers are interrupted now"
            if self._reached
            else "draining",
        )
        self.follow()

    def follow(self) -> None:
        """Bring the request to the present level. Called on the event loop."""
        while self._reached < self._level:
            self._reached += 1
            if self._reached == 1:
                self._request.drain()
            else:
                self._request.hurry()


def _own_stdin() -> int:
    """Take stdin for this process alone: programs that handlers start find the end of theirs at
    once."""
    taken = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken
