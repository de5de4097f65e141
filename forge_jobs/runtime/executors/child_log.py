"""The log of a child, which is that of the pod."""

import logging

from forge_jobs.runtime.executors.messages import LogLine
from forge_jobs.runtime.executors.remote import Pod
from forge_jobs.runtime.executors.sending import Elsewhere
from forge_jobs.runtime.shared.clean_texts import clean_text

_KEPT_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class PodLog(logging.Handler):
    """Sends each record to the log of the pod. Of a forked process, to stderr."""

    def __init__(self, pod: Pod) -> None:
        super().__init__()
        self._pod = pod

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. A record that cannot be formatted is reported by the logging module."""
        try:
            self._pod.send(_log_line(record))
        except Elsewhere:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
        except OSError:
            pass  # the pod is gone, and this process ends in a moment
        except Exception:
            self.handleError(record)


def _log_line(record: logging.LogRecord) -> LogLine:
    traceback = record.exc_text or ""
    if not traceback and record.exc_info and record.exc_info[0] is not None:
        traceback = logging.Formatter().formatException(record.exc_info)
    return LogLine(
        logger=record.name,
        level=record.levelno,
        message=clean_text(record.getMessage(), 64 * 1024),
        created=record.created,
        path=record.pathname,
        line=record.lineno,
        function=record.funcName or "",
        traceback=clean_text(traceback, 64 * 1024, keep_end=True),
        extra={
            name: value
            for name, value in record.__dict__.items()
            if name not in _KEPT_FIELDS and isinstance(value, str | int | float)
        },
    )
