"""The command and the request that a form stands for."""

import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from forge_jobs.durations import format_duration
from forge_jobs.operating.operations import API
from forge_jobs.web.pages.frame import Visit


def curl(visit: Visit, method: str, route: str, body: Mapping[str, Any]) -> str:
    """Return the request with a body."""
    address = f"http://{visit.request.url.netloc}{visit.root}{API}{route}"
    words = ["curl", "-X", method, address, "-H", "Authorization: Bearer TOKEN"]
    content = msgspec.json.encode(body).decode()
    return shlex.join([*words, "-H", "Content-Type: application/json", "-d", content])


def flag(name: str, value: Any) -> list[str]:
    """Return the option of a command."""
    if name == "tags":
        return [f"--tag={tag}" for tag in value]
    if isinstance(value, timedelta):
        value = format_duration(value)
    return [f"--{name.replace('_', '-')}={'unlimited' if value is None else value}"]
