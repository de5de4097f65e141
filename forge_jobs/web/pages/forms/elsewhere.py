"""The command, the request and the line of Python that a form stands for."""

import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from forge_jobs.durations import format_duration
from forge_jobs.operating.operations import API
from forge_jobs.web.pages.frame import Visit


def curl(visit: Visit, method: str, route: str, body: Mapping[str, Any] | None = None) -> str:
    """Return the request, with a body when one is given."""
    address = f"http://{visit.request.url.netloc}{visit.root}{API}{route}"
    words = ["curl", "-X", method, address, "-H", "Authorization: Bearer TOKEN"]
    if body:
        content = msgspec.json.encode(body).decode()
        words += ["-H", "Content-Type: application/json", "-d", content]
    return shlex.join(words)


def flag(name: str, value: Any) -> list[str]:
    """Return the option of a command. Without any tag the one option is empty."""
    if name == "tags":
        return [f"--tag={tag}" for tag in value or ("",)]
    return [f"--{name.replace('_', '-')}={_said(name, value)}"]


def literal(value: Any) -> str:
    """Return a value in Python. Durations and instants need ``datetime``, JSON needs ``Raw``."""
    if isinstance(value, timedelta):
        return f"timedelta(seconds={value.total_seconds():g})"
    if isinstance(value, datetime):
        return f"datetime.fromisoformat({value.isoformat()!r})"
    if isinstance(value, Raw):
        return f"Raw({bytes(value)!r})"
    return repr(value)


def arguments(values: Mapping[str, Any]) -> str:
    """Return keyword arguments in Python."""
    return ", ".join(f"{name}={literal(value)}" for name, value in values.items())


def _said(name: str, value: Any) -> str:
    if value is None:
        return "unlimited" if name == "max_attempts" else "none"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Raw):
        return bytes(value).decode()
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    return str(value)
