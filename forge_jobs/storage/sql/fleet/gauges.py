"""The pods' measurements of themselves, minute by minute."""

from datetime import datetime

import msgspec
from sqlalchemy import bindparam, exists, select, update

from forge_jobs.clock import from_us, to_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import HOUR, PodMinute
from forge_jobs.model.processes import PodGauges, PodLease
from forge_jobs.storage.salvage import gauges_of
from forge_jobs.storage.sql.base.tables import gauges, pod_hours, pods
from forge_jobs.storage.sql.base.transaction import Tx

decode_gauges = msgspec.json.Decoder(PodGauges).decode

_OF_PODS = (
    select(pod_hours)
    .where(pod_hours.c.hour >= bindparam("since"), pod_hours.c.hour < bindparam("until"))
    .order_by(pod_hours.c.hour, pod_hours.c.host_id)
)
_MINUTES = (
    select(gauges)
    .where(gauges.c.minute >= bindparam("since"), gauges.c.minute < bindparam("until"))
    .order_by(gauges.c.minute, gauges.c.host_id)
)
_MINUTE = (gauges.c.minute == bindparam("at"), gauges.c.host_id == bindparam("by"))
_KEEP_MINUTE = update(gauges).where(*_MINUTE).values(gauges=bindparam("measured"))
_SHOW_NEWEST = (
    update(pods)
    .where(
        pods.c.host_id == bindparam("by"),
        pods.c.epoch == bindparam("at_epoch"),
        ~exists().where(gauges.c.minute > bindparam("at"), gauges.c.host_id == pods.c.host_id),
    )
    .values(gauges=bindparam("measured"))
)


def record_gauges(tx: Tx, lease: PodLease, minute: datetime, measured: PodGauges) -> None:
    """See ``ProcStore.record_gauges``."""
    stored = {"at": to_us(minute), "measured": msgspec.json.encode(measured).decode()}
    if tx.execute(_KEEP_MINUTE, {**stored, "by": lease.host_id}).rowcount == 0:
        tx.execute(
            tx.flavor.insert_ignore(gauges),
            {"minute": stored["at"], "host_id": lease.host_id, "gauges": stored["measured"]},
        )
    tx.execute(_SHOW_NEWEST, {**stored, "by": lease.host_id, "at_epoch": lease.epoch})


def read_gauges(tx: Tx, since: datetime, until: datetime) -> list[PodMinute]:
    """See ``ProcStore.gauges``."""
    rows = tx.execute(_MINUTES, {"since": to_us(since), "until": to_us(until)})
    return [
        PodMinute(host_id=row.host_id, minute=from_us(row.minute), gauges=measured)
        for row in rows
        if (measured := gauges_of(row.host_id, row.gauges)) is not None
    ]


def gauges_of_hours(tx: Tx, since: datetime, until: datetime) -> list[PodMinute]:
    """Return the hours of pods that begin in the range."""
    rows = tx.execute(_OF_PODS, {"since": to_us(since), "until": to_us(until)})
    return [
        PodMinute(
            host_id=HostId(row.host_id), minute=from_us(row.hour), gauges=measured, length=HOUR
        )
        for row in rows
        if (measured := gauges_of(row.host_id, row.gauges)) is not None
    ]
