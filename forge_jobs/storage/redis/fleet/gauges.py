"""Measurements that pods made of themselves, minute by minute."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forge_jobs.clock import from_us, to_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import HOUR, MINUTE, PodMinute
from forge_jobs.model.processes import PodGauges, PodLease
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.salvage import gauges_of

MINUTES_AT_ONCE = 500
"""The most minutes that one step reads, so that every step is short."""

_LISTS = ((HOUR, ":pod_hours", ":hg:"), (MINUTE, ":gauges", ":g:"))
"""Where hours and minutes are listed, and the keys of their measurements."""

decode_gauges = msgspec.json.Decoder(PodGauges).decode


async def record_gauges(
    database: Database, lease: PodLease, minute: datetime, measured: PodGauges
) -> None:
    """See ``ProcStore.record_gauges``."""
    text = msgspec.json.encode(measured).decode()
    request = request_of(
        "record_gauges",
        host=lease.host_id,
        epoch=lease.epoch,
        minute=to_us(minute),
        measured=text,
    )
    await database.run_one("record_gauges", database.keys.fleet, request, bool)


async def read_gauges(database: Database, since: datetime, until: datetime) -> list[PodMinute]:
    """See ``ProcStore.gauges``."""
    found: list[PodMinute] = []
    for length, listed, prefix in _LISTS:
        lists = {"list": listed, "prefix": prefix}
        found += await _read(database, to_us(since), to_us(until), length, lists)
    return sorted(found, key=lambda each: each.minute)


async def _read(
    database: Database, start: int, end: int, length: timedelta, lists: Mapping[str, str]
) -> list[PodMinute]:
    found: list[PodMinute] = []
    while start < end:
        request = request_of("gauges", since=start, ends=end, limit=MINUTES_AT_ONCE, **lists)
        minutes = await database.run_one(
            "gauges", database.keys.fleet, request, list[tuple[int, list[str]]]
        )
        for minute, flat in minutes:
            by_host = sorted(zip(flat[::2], flat[1::2], strict=True))
            found += [
                PodMinute(
                    host_id=HostId(host), minute=from_us(minute), gauges=measured, length=length
                )
                for host, text in by_host
                if (measured := gauges_of(host, text)) is not None
            ]
        if len(minutes) < MINUTES_AT_ONCE:
            break
        start = minutes[-1][0] + 1
    return found
