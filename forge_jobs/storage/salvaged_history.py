"""Events and measured minutes that cannot be read."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.processes import PodGauges
from forge_jobs.storage.salvage import Fields, log_unreadable

T = TypeVar("T")

_counts = msgspec.json.Decoder(dict[int, int]).decode
_names = msgspec.json.Decoder(dict[str, int]).decode
_gauges = msgspec.json.Decoder(PodGauges).decode


def salvaged_event(found: TimelineEvent, problems: str) -> TimelineEvent:
    """The event as callers see it: one that cannot be read says so in its detail.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    detail = f"{found.detail} ({problems})" if found.detail else problems
    return msgspec.structs.replace(found, kind=EventKind.UNREADABLE, detail=detail)


def counts_of(queue: str, stored: Any) -> Mapping[int, int]:
    """A stored histogram, an empty one where it cannot be read."""
    nothing: Mapping[int, int] = {}
    return _read("latencies of queue", queue, _counts, stored) or nothing


def names_of(queue: str, stored: Any) -> Mapping[str, int]:
    """Stored counters by name, none where they cannot be read."""
    nothing: Mapping[str, int] = {}
    return _read("counters of queue", queue, _names, stored) or nothing


def gauges_of(host_id: str, stored: Any) -> PodGauges | None:
    """Stored measurements of a pod, None where they cannot be read."""
    return _read("gauges of pod", host_id, _gauges, stored)


def _read(sort: str, name: str, decode: Callable[[Any], T], stored: Any) -> T | None:
    read = Fields({"value": stored})
    found = read.read("value", decode, None)
    if read.problems:
        log_unreadable(sort, name, read.problems, "this minute is left out")
    return found
