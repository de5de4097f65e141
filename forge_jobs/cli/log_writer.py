"""Writes the log of a worker process in a separate thread."""

import logging
import os
import queue
import select
import threading

WAITING_MOST = 10_000
"""The most lines that wait to be written. Further lines are dropped and counted, and a line says
so."""

_TO_FLUSH = 1.0
"""Seconds. Nothing waits for longer for a log that is not read."""


class LogWriter(logging.Handler):
    """A handler that never waits: a full pipe or a slow terminal holds up log lines, and no job.

    :param descriptor: written to directly. A buffered stream would be flushed once more when the
        interpreter ends, and a stuck line in the buffer would delay that end
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a line for writing, if there is room."""
        try:
            line = self.format(record) + "\n"
        except Exception:  # filters and arguments are the program's code
            self.handleError(record)
            return
        self._put(line)

    def flush(self) -> None:
        """Wait until all lines so far are written, for a second at most."""
        written = threading.Event()
        self._put(written)
        written.wait(_TO_FLUSH)

    def _put(self, line: str | threading.Event) -> None:
        if self._process != os.getpid():
            self._begin()  # a forked child lacks the parent's threads
        if isinstance(line, str) and self._lines.qsize() >= WAITING_MOST:
            self._dropped += 1
            return
        self._lines.put(line)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="forge-jobs-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: the next line tries again
            return
        self._thread = thread

    def _run(self) -> None:
        told = 0
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
            else:
                self._write(line)
            if self._dropped > told and self._lines.qsize() < WAITING_MOST // 2:
                dropped, told = self._dropped - told, self._dropped
                self._write(f"{dropped} lines were dropped, for the log is read too slowly\n")

    def _write(self, line: str) -> None:
        rest = line.encode("utf-8", "backslashreplace")
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # another user of the descriptor has made it non-blocking
                    poller = select.poll()
                    poller.register(self._descriptor, select.POLLOUT)
                    poller.poll()
        except OSError:  # the descriptor is closed, or the reader has gone
            return
