"""Schedules declared beside the handlers they run."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from forge_jobs.handlers.handler import Handler


class Recurring(Struct, frozen=True, kw_only=True):
    """A handler with a schedule, as its decorator says. Checked at the start of a runtime.

    :param name: of the schedule, unique in the store
    :param arguments: of the handler
    :param options: of the schedule: timezone, jitter, catch_up, window, overlap
    """

    name: str
    handler: Handler[..., Any]
    expression: str
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
