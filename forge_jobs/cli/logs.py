"""Logging of a worker process: lines for people, or JSON objects, on stderr."""

import logging
import re
import sys
from typing import Any

import msgspec

from forge_jobs.cli.log_writer import LogWriter
from forge_jobs.cli.output import talk
from forge_jobs.clock import from_us
from forge_jobs.config import Deployment
from forge_jobs.operating.documents import plain

_DRIVERS = ("aiosqlite", "asyncio", "asyncpg", "redis", "sqlalchemy")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but for tabs and ends of lines, and those that change the order of letters."""


class TextFormatter(logging.Formatter):
    """Formats a record as a line for people.

    What jobs bring, as names and errors, cannot steer a terminal. All lines of a record but the
    first are indented, so no text of a job looks like a record of its own. Lines of the program's
    own loggers stay as they are, colours too.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not record.name.startswith("forge_jobs"):
            return text
        text = _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
        return text.replace("\n", "\n  ")


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line. The fields of ``extra`` become keys."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": plain(from_us(int(record.created * 1_000_000))),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        extra = {key: item for key, item in vars(record).items() if key not in _STANDARD}
        fields = {
            key: _text(item) if isinstance(item, str) else item
            for key, item in (extra | entry).items()
        }
        text = msgspec.json.encode(fields, enc_hook=str).decode()
        # All of them are within texts, where an escape means the same.
        return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _text(text: str) -> str:
    # A lone surrogate, as in a file name that is not UTF-8, has no place in JSON.
    return text.encode("utf-8", "backslashreplace").decode()


def _handler() -> logging.Handler:
    try:
        return LogWriter(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something else
        return logging.StreamHandler()


def configure_logging(deployment: Deployment) -> None:
    """Log to stderr as the deployment says. Handlers that a program has set up stay."""
    handler = _handler()
    if deployment.log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    logging.basicConfig(level=deployment.log, handlers=[handler])
    for name in _DRIVERS:
        # Who debugs jobs drowns in the statements of a driver. A program's own choice stays.
        driver = logging.getLogger(name)
        if deployment.log == "DEBUG" and driver.level == logging.NOTSET:
            driver.setLevel(logging.WARNING)


class _Remarks(logging.Handler):
    """Writes what is logged as a remark for people."""

    def emit(self, record: logging.LogRecord) -> None:
        talk(record.getMessage())


def tell_outages() -> None:
    """Tell people on stderr when what they watch cannot be read, once an outage."""
    outages = logging.getLogger("forge_jobs.clients.watching")
    outages.addHandler(_Remarks())
    outages.setLevel(logging.INFO)
    outages.propagate = False
    # The log is away when the states are: one remark is enough.
    logging.getLogger("forge_jobs.clients.following").setLevel(logging.ERROR)


def keep_off_the_screen() -> None:
    """Drop what is logged. A line would stand in the middle of the screen."""
    logging.getLogger().addHandler(logging.NullHandler())
