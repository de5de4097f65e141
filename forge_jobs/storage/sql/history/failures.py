"""Groups of failures: written from what pods have met, read page by page."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Row, bindparam, func, literal, select, tuple_

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
from forge_jobs.storage.sql.base.upserts import Records

_GROUPS = Records(error_groups, ("queue", "id"), ("first_at", "last_at", "versions", "jobs"))
_COUNTS = Records(error_hours, ("id", "queue", "hour"), ("counts",))
_GROUP = select(error_groups).where(
    error_groups.c.queue == bindparam("of"), error_groups.c.id == bindparam("group")
)
_KNOWN = select(error_groups.c.queue, error_groups.c.id).where(
    one_of(error_groups.c.queue, "names"), one_of(error_groups.c.id, "ids")
)
_NUMBERS = (
    select(error_groups.c.queue, func.count())
    .where(one_of(error_groups.c.queue, "names"))
    .group_by(error_groups.c.queue)
)
_HOURS = select(error_hours).where(
    one_of(error_hours.c.id, "ids"),
    error_hours.c.hour >= bindparam("since", type_=BigInteger),
    error_hours.c.hour < bindparam("until", type_=BigInteger),
)

_decode = msgspec.json.Decoder(list[str]).decode
_NONE: list[str] = []


def add_failures(tx: Tx, samples: Sequence[FailureSample]) -> None:
    """See ``JobStore.add_failures``."""
    of_group: defaultdict[tuple[str, str], list[Failed]] = defaultdict(list)
    counts: defaultdict[tuple[str, str, int], Counter[int]] = defaultdict(Counter)
    for failed in _with_few_groups(tx, merged(samples)):
        of_group[failed.queue, failed.group].append(failed)
        for hour, numbers in failed.hours.items():
            counts[failed.queue, failed.group, hour].update(numbers)
    stored = _GROUPS.held(tx, [_row(of_group[key][0]) for key in sorted(of_group)])
    _GROUPS.put(tx, [(row, _added(row, of_group[row.queue, row.id])) for row in stored])
    made = [
        {"id": group, "queue": queue, "hour": hour, "counts": "{}"}
        for queue, group, hour in sorted(counts)
    ]
    changed = []
    for row in _COUNTS.held(tx, made):
        together = Counter(counts_of(row.queue, row.counts))
        together.update(counts[row.queue, row.id, row.hour])
        changed.append((row, {"counts": _json(dict(together))}))
    _COUNTS.put(tx, changed)


def _with_few_groups(tx: Tx, failures: Sequence[Failed]) -> Iterator[Failed]:
    """Return the failures, those of too many groups of a queue as of the group of all others."""
    names, ids = ({each.queue for each in failures}, {each.group for each in failures})
    known = {(*row,) for row in tx.execute(_KNOWN, {"names": sorted(names), "ids": sorted(ids)})}
    new = {each.queue for each in failures if (each.queue, each.group) not in known}
    numbers: Counter[str] = Counter()
    for queue, number in tx.execute(_NUMBERS, {"names": sorted(new)}) if new else ():
        numbers[queue] = number
    for failed in failures:
        if (failed.queue, failed.group) in known:
            yield failed
        elif numbers[failed.queue] < MOST_GROUPS:
            known.add((failed.queue, failed.group))
            numbers[failed.queue] += 1
            yield failed
        else:
            yield msgspec.structs.replace(failed, group=OTHER, kind="", type="", message="")


def _added(row: Row[Any], failures: Sequence[Failed]) -> dict[str, Any]:
    read = Fields({**row._mapping})
    first_at, last_at = read.number("first_at", failures[0].first_at), read.number("last_at")
    versions, jobs = read.read("versions", _decode, _NONE), read.read("jobs", _decode, _NONE)
    for failed in failures:
        first_at, last_at = min(first_at, failed.first_at), max(last_at, failed.last_at)
        versions = newest_versions(versions, failed.versions)
        jobs = newest_jobs(jobs, failed.jobs)
    return {
        "first_at": first_at,
        "last_at": last_at,
        "versions": _json(versions),
        "jobs": _json(jobs),
    }


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
