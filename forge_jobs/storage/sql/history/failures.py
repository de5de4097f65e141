"""Groups of failures: written from what pods have met, read page by page."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, func, literal, select, tuple_, update

from forge_jobs.model.failures import (
    MOST_GROUPS,
    OTHER,
    ErrorGroup,
    ErrorGroups,
    FailureSample,
)
from forge_jobs.model.ids import JobId
from forge_jobs.storage.history.failures import (
    Failed,
    GroupsAsked,
    Place,
    Steps,
    merged,
    newest_jobs,
    newest_versions,
)
from forge_jobs.storage.salvage import Fields, counts_of
from forge_jobs.storage.sql.base.history_tables import error_groups, error_hours
from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.transaction import Tx

_IS_GROUP = (
    error_groups.c.queue == bindparam("of"),
    error_groups.c.id == bindparam("group"),
)
_IS_HOUR = (
    error_hours.c.id == bindparam("group"),
    error_hours.c.queue == bindparam("of"),
    error_hours.c.hour == bindparam("at"),
)
_GROUP = select(error_groups).where(*_IS_GROUP)
_LOCKED = _GROUP.with_for_update(key_share=True)
_OF_QUEUE = error_groups.c.queue == bindparam("of")
_NUMBER = select(func.count()).select_from(error_groups).where(_OF_QUEUE)
_CHANGE = (
    update(error_groups)
    .where(*_IS_GROUP)
    .values(
        first_at=bindparam("new_first_at"),
        last_at=bindparam("new_last_at"),
        versions=bindparam("new_versions"),
        jobs=bindparam("new_jobs"),
    )
)
_HOUR_LOCKED = select(error_hours.c.counts).where(*_IS_HOUR).with_for_update(key_share=True)
_COUNT = update(error_hours).where(*_IS_HOUR).values(counts=bindparam("new_counts"))
_HOURS = select(error_hours).where(
    one_of(error_hours.c.id, "ids"),
    error_hours.c.hour >= bindparam("since", type_=BigInteger),
    error_hours.c.hour < bindparam("until", type_=BigInteger),
)

_decode = msgspec.json.Decoder(list[str]).decode
_NONE: list[str] = []


def add_failures(tx: Tx, samples: Sequence[FailureSample]) -> None:
    """See ``JobStore.add_failures``."""
    for failed in merged(samples):
        group = _group_for(tx, failed)
        for hour, numbers in sorted(failed.hours.items()):
            _count(tx, group, failed.queue, hour, numbers)


def _group_for(tx: Tx, failed: Failed) -> str:
    """Add to the group of the failures, or to the group of all others. Return the group's id."""
    key = {"of": failed.queue, "group": failed.group}
    stored = tx.execute(_LOCKED, key).one_or_none()
    if stored is None:
        if tx.execute(_NUMBER, {"of": failed.queue}).scalar_one() >= MOST_GROUPS:
            failed = msgspec.structs.replace(failed, group=OTHER, kind="", type="", message="")
        key["group"] = failed.group
        tx.execute(tx.flavor.insert_ignore(error_groups), _row(failed))
        stored = tx.execute(_LOCKED, key).one()
    read = Fields({**stored._mapping})
    tx.execute(
        _CHANGE,
        {
            **key,
            "new_first_at": min(read.number("first_at", failed.first_at), failed.first_at),
            "new_last_at": max(read.number("last_at"), failed.last_at),
            "new_versions": _json(
                newest_versions(read.read("versions", _decode, _NONE), failed.versions)
            ),
            "new_jobs": _json(newest_jobs(read.read("jobs", _decode, _NONE), failed.jobs)),
        },
    )
    return failed.group


def _row(failed: Failed) -> dict[str, Any]:
    return {
        "queue": failed.queue,
        "id": failed.group,
        "kind": failed.kind,
        "type": failed.type,
        "message": failed.message,
        "first_at": failed.first_at,
        "last_at": failed.last_at,
        "versions": "[]",
        "jobs": "[]",
    }


def _count(tx: Tx, group: str, queue: str, hour: int, numbers: Mapping[int, int]) -> None:
    row = {"id": group, "queue": queue, "hour": hour, "counts": "{}"}
    tx.execute(tx.flavor.insert_ignore(error_hours), row)
    key = {"group": group, "of": queue, "at": hour}
    together = Counter(counts_of(queue, tx.execute(_HOUR_LOCKED, key).scalar_one()))
    together.update(numbers)
    tx.execute(_COUNT, {**key, "new_counts": _json(dict(together))})


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# -- reading -----------------------------------------------------------------------------------


def read_groups(tx: Tx, asked: GroupsAsked) -> ErrorGroups:
    """See ``JobStore.error_groups``."""
    steps, queue, after, limit = asked
    table = error_groups.c
    wanted = (
        select(error_groups)
        .where(table.last_at >= steps.since, table.first_at < steps.ends)
        .order_by(table.last_at.desc(), table.queue.desc(), table.id.desc())
        .limit(limit)
    )
    if queue is not None:
        wanted = wanted.where(table.queue == queue)
    if after is not None:
        key = tuple_(table.last_at, table.queue, table.id)
        wanted = wanted.where(
            key
            < tuple_(
                literal(after.last_at, BigInteger),
                literal(after.queue, TEXT),
                literal(after.group, TEXT),
            )
        )
    rows = tx.execute(wanted).all()
    hours = _hours(tx, [row.id for row in rows], steps)
    counted = (steps.counted(_group(row), hours[row.queue, row.id]) for row in rows)
    ends_at = rows[-1] if len(rows) == limit else None
    return ErrorGroups(
        groups=tuple(group for group in counted if group is not None),
        cursor=None
        if ends_at is None
        else Place(ends_at.last_at, ends_at.queue, ends_at.id).cursor(),
    )


def read_group(tx: Tx, queue: str, group: str, steps: Steps) -> ErrorGroup | None:
    """See ``JobStore.error_group``."""
    row = tx.execute(_GROUP, {"of": queue, "group": group}).one_or_none()
    if row is None:
        return None
    found = _group(row)
    return steps.counted(found, _hours(tx, [group], steps)[queue, group]) or found


_OfGroups = defaultdict[tuple[str, str], dict[int, Mapping[int, int]]]


def _hours(tx: Tx, ids: Sequence[str], steps: Steps) -> _OfGroups:
    found: _OfGroups = defaultdict(dict)
    if ids:
        asked = {"ids": sorted(set(ids)), "since": steps.first_hour, "until": steps.until}
        for row in tx.execute(_HOURS, asked):
            found[row.queue, row.id][row.hour] = counts_of(row.queue, row.counts)
    return found


def _group(row: Any) -> ErrorGroup:
    read = Fields({**row._mapping})
    return ErrorGroup(
        id=row.id,
        queue=row.queue,
        kind=read.text("kind"),
        type=read.text("type"),
        message=read.text("message"),
        retried=0,
        dead=0,
        first_at=read.instant("first_at"),
        last_at=read.instant("last_at"),
        versions=tuple(read.read("versions", _decode, _NONE)),
        jobs=tuple(map(JobId, read.read("jobs", _decode, _NONE))),
    )
