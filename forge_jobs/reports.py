"""The log of the engine, without waiting for the log where a thread must not wait.

A log handler may block (a full pipe, a slow log server) or raise, and all threads share the
handler's lock. So threads on which others' jobs depend, above all the thread of the heartbeat,
never call the log. They hand their reports to a thread that does nothing else. All other threads
log at once, unless reports wait: then theirs follow. An exception of the handler stays in the
handler.

::

    logger = reporter(__name__)       # in place of logging.getLogger(__name__)
    defer_reports()                   # at the start of a thread that must not wait
"""

import atexit
import logging
import os
import queue
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Mapping
from types import FrameType
from typing import Any

from msgspec import Struct

from forge_jobs.clock import SystemClock

WAITING_MOST = 1_000
"""Reports that wait for the log at most. What comes on top is dropped and counted."""

AT_EXIT = 1.0
"""Seconds that the end of a process waits for the log at most."""

_clock = SystemClock()

_DRIVERS = ("asyncio", "aiosqlite", "asyncpg", "concurrent", "py", "redis", "sqlalchemy")
"""Roots of the loggers of the libraries that run on threads which must not wait."""


class ReportCounts(Struct, frozen=True, kw_only=True):
    """Counts of the reports of this process.

    :param waiting: handed over and not logged yet, the one included that is being logged
    :param dropped: too many were waiting
    :param failed: the log handler raised
    """

    waiting: int
    dropped: int
    failed: int

    @property
    def unlogged(self) -> int:
        """How many the log has not taken."""
        return self.dropped + self.failed


class Stack:
    """The place of a thread, read without touching a file. Formatted when logged."""

    def __init__(self, frame: FrameType | None) -> None:
        self._frames: list[tuple[str, int, str]] = []
        while frame is not None:
            code = frame.f_code
            self._frames.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        self._frames.reverse()

    def __str__(self) -> str:
        if not self._frames:
            return "(the thread has ended)"
        summary = traceback.StackSummary.from_list(
            traceback.FrameSummary(file, line, name) for file, line, name in self._frames
        )
        return "".join(summary.format())[-16 * 1024 :]


class _Report(Struct, frozen=True):
    logger: logging.Logger
    level: int
    message: str
    args: tuple[Any, ...]
    exc_info: Any
    extra: Mapping[str, object] | None
    caller: tuple[str, int, str]
    at: float
    thread: tuple[int, str]

    def deliver(self) -> None:
        if not self.logger.isEnabledFor(self.level):
            return
        path, line, function = self.caller
        record = self.logger.makeRecord(
            self.logger.name,
            self.level,
            path,
            line,
            self.message,
            self.args,
            self.exc_info,
            function,
            self.extra,
        )
        record.relativeCreated -= (record.created - self.at) * 1000
        record.created, record.msecs = self.at, float(int(self.at * 1000) % 1000)
        record.thread, record.threadName = self.thread
        self.logger.handle(record)


_Waiting = _Report | logging.LogRecord | threading.Event


class _ReportQueue:
    """The report queue of this process, and the thread that logs them."""

    def __init__(self) -> None:
        self.dropped = 0
        self.failed = 0
        self._told_of = 0
        self._queue: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        self._undelivered: deque[None] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return len(self._undelivered)

    def put(self, report: _Report | logging.LogRecord) -> None:
        """Hand a report over. Waits for nothing."""
        if self.waiting >= WAITING_MOST:
            self.dropped += 1
            return
        self._undelivered.append(None)
        self._queue.put(report)
        self.start()

    def start(self) -> None:
        """Make sure that the thread runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            thread = threading.Thread(target=self._run, name="forge-jobs-reports", daemon=True)
            thread.start()
            self._thread = thread
        except RuntimeError:  # no thread can be started: the next report tries again
            return
        finally:
            self._lock.release()

    def flush(self, at_most: float) -> bool:
        if not self._queue.qsize() and (self._thread is None or not self._thread.is_alive()):
            return True
        reached = threading.Event()
        self._queue.put(reached)
        self.start()
        return reached.wait(at_most)

    def _run(self) -> None:
        while True:
            waiting = self._queue.get()
            try:
                self._deliver(waiting)
            except BaseException:  # a handler of the log is the program's code
                self.failed += 1
            finally:
                if not isinstance(waiting, threading.Event):
                    self._undelivered.popleft()
            del waiting

    def _deliver(self, waiting: _Waiting) -> None:
        if isinstance(waiting, threading.Event):
            waiting.set()
            return
        if isinstance(waiting, _Report):
            waiting.deliver()
        else:
            logging.getLogger(waiting.name).handle(waiting)
        if self.dropped > self._told_of:
            dropped, self._told_of = self.dropped - self._told_of, self.dropped
            logging.getLogger(__name__).warning(
                "%d lines of forge_jobs were dropped, because the log handlers of this process "
                "are too slow; let them write faster, or raise their level",
                dropped,
            )


_queue = _ReportQueue()
_deferring: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def _is_deferring() -> bool:
    return threading.current_thread() in _deferring


class _Divert(logging.Filter):
    """Keeps the records of libraries from the handlers while a thread that must not wait runs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_deferring():
            return True
        _queue.put(record)
        return False


_divert = _Divert()


class Reporter(logging.LoggerAdapter[logging.Logger]):
    """A logger for the engine's own modules: never raises, and waits only where waiting is
    allowed."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or hand over what is to be logged."""
        if _queue.waiting or _is_deferring():
            # Also where earlier reports wait: the log may block, and the order is kept.
            self._defer(level, str(msg), args, kwargs)
            return
        try:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            self.logger.log(level, msg, *args, **kwargs)
        except Exception:  # a handler of the log is the program's code
            _queue.failed += 1

    def _defer(
        self, level: int, message: str, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> None:
        thread = threading.current_thread()
        report = _Report(
            self.logger,
            level,
            message,
            args,
            _exc_info(kwargs.get("exc_info")),
            kwargs.get("extra"),
            _caller(),
            _clock.time_us() / 1_000_000,
            (thread.ident or 0, thread.name),
        )
        _queue.put(report)


def _exc_info(given: Any) -> Any:
    if isinstance(given, BaseException):
        return (type(given), given, given.__traceback__)
    return sys.exc_info() if given and not isinstance(given, tuple) else given


_OWN_FILES = (logging.__file__, __file__)


def _caller() -> tuple[str, int, str]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _OWN_FILES:
        frame = frame.f_back
    if frame is None:
        return ("(unknown)", 0, "(unknown)")
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def reporter(name: str) -> Reporter:
    """The logger of that name, for a module of the engine."""
    return Reporter(logging.getLogger(name), {})


def defer_reports(thread: threading.Thread | None = None) -> None:
    """Let this thread, or the one that is given, never wait for the log.

    Records of libraries on that thread go the same way. Call this again when a library has made
    loggers meanwhile.
    """
    _deferring.add(threading.current_thread() if thread is None else thread)
    _queue.start()
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _DRIVERS:
            logger.addFilter(_divert)


def flush_reports(at_most: float = AT_EXIT) -> bool:
    """Wait until all reports handed over so far are logged. False: not within ``at_most``."""
    return _queue.flush(at_most)


def report_counts() -> ReportCounts:
    """Counts of the reports of this process."""
    return ReportCounts(waiting=_queue.waiting, dropped=_queue.dropped, failed=_queue.failed)


def _start_over() -> None:
    """Start over in a forked child: the parent's threads are gone, and so are their reports."""
    global _queue, _deferring
    _queue, _deferring = _ReportQueue(), weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)
atexit.register(flush_reports)
