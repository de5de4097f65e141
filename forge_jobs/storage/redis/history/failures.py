"""Groups of failures: written from what pods have met, read page by page."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from forge_jobs.model.failures import (
    MOST_GROUPS,
    MOST_SAMPLES,
    MOST_VERSIONS,
    OTHER,
    ErrorGroup,
    ErrorGroups,
    FailureSample,
)
from forge_jobs.model.ids import JobId
from forge_jobs.storage.history.failures import Failed, GroupsAsked, Hours, Place, Steps, merged
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import StoredFields
from forge_jobs.storage.redis.base.queues import note_queues, queue_names
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.keys import queue_of

_AT_ONCE = 100
"""Groups that one step changes at most."""

_BEYOND_ALL = "~"
"""A group after every real one."""


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The answer of the scripts about a group: texts, "" for what is not set."""

    group: str
    kind: str
    type: str
    message: str
    first: str
    last: str
    versions: str
    jobs: str
    hours: list[tuple[int, list[int]]]

    @property
    def numbers(self) -> Hours:
        """The failures by hours and places."""
        return {hour: dict(zip(flat[::2], flat[1::2], strict=True)) for hour, flat in self.hours}


async def add_failures(db: Database, samples: Sequence[FailureSample]) -> list[FailureSample]:
    """See ``JobStore.add_failures``."""
    fresh = {sample.queue for sample in samples} - db.queues_met
    if fresh:
        await note_queues(db, fresh)
    of_queue: defaultdict[str, list[Failed]] = defaultdict(list)
    for failed in merged(samples):
        of_queue[db.keys.queue(failed.queue)].append(failed)
    silent: set[str] = set()
    while of_queue:
        requests = {
            base: request_of(
                "add_failures",
                found=[_item(each) for each in found[:_AT_ONCE]],
                most=MOST_GROUPS,
                jobs_kept=MOST_SAMPLES,
                versions_kept=MOST_VERSIONS,
                other=OTHER,
            )
            for base, found in of_queue.items()
        }
        silent |= (await db.run_some("add_failures", requests, bool)).silent.keys()
        left = {base: found[_AT_ONCE:] for base, found in of_queue.items() if base not in silent}
        of_queue = defaultdict(list, {base: found for base, found in left.items() if found})
    return [sample for sample in samples if db.keys.queue(sample.queue) in silent]


def _item(failed: Failed) -> tuple[object, ...]:
    return item_of(
        "add_failures",
        "failed",
        id=failed.group,
        kind=failed.kind,
        type_of=failed.type,
        message=failed.message,
        first=failed.first_at,
        last=failed.last_at,
        versions="\n".join(failed.versions),
        jobs="\n".join(failed.jobs),
        hours=[
            (hour, [number for pair in numbers.items() for number in pair])
            for hour, numbers in failed.hours.items()
        ],
    )


async def read_groups(db: Database, wanted: GroupsAsked) -> ErrorGroups:
    """See ``JobStore.error_groups``."""
    steps, queue, after, limit = wanted
    names = await queue_names(db) if queue is None else [queue]
    requests = {}
    for name in names:
        last, group = _behind(after, name)
        requests[db.keys.queue(name)] = request_of(
            "error_groups",
            since=steps.since,
            ends=steps.ends,
            first_hour=steps.first_hour,
            most=limit,
            last=last,
            group=group,
        )
    answers, silent = await db.run_some("error_groups", requests, list[_Stored])
    if queue is not None and silent:
        raise silent[db.keys.queue(queue)]
    found = [
        (_place(queue_of(base), each), each) for base, groups in answers.items() for each in groups
    ]
    found.sort(key=lambda each: each[0], reverse=True)
    page = found[:limit]
    counted = (steps.counted(_group(place, each), each.numbers) for place, each in page)
    return ErrorGroups(
        groups=tuple(group for group in counted if group is not None),
        cursor=page[-1][0].cursor() if len(page) == limit else None,
        silent=tuple(sorted(map(queue_of, silent))),
    )


def _behind(after: Place | None, queue: str) -> tuple[object, str]:
    """Return where a queue goes on: a time, and the group before which those of that time are."""
    if after is None:
        return False, ""
    if queue == after.queue:
        return after.last_at, after.group
    return after.last_at, _BEYOND_ALL if queue < after.queue else ""


async def read_group(db: Database, queue: str, group: str, steps: Steps) -> ErrorGroup | None:
    """See ``JobStore.error_group``."""
    request = request_of("error_group", group=group, first_hour=steps.first_hour, ends=steps.until)
    answer = await db.run_one("error_group", db.keys.queue(queue), request, Any)
    if not answer:
        return None
    stored = msgspec.convert(answer, _Stored)
    found = _group(_place(queue, stored), stored)
    return steps.counted(found, stored.numbers) or found


def _place(queue: str, stored: _Stored) -> Place:
    last_at = int(stored.last) if stored.last.isdecimal() else 0
    return Place(last_at, queue, stored.group)


def _group(place: Place, stored: _Stored) -> ErrorGroup:
    read = StoredFields(msgspec.structs.asdict(stored))
    return ErrorGroup(
        id=stored.group,
        queue=place.queue,
        kind=stored.kind,
        type=stored.type,
        message=stored.message,
        retried=0,
        dead=0,
        first_at=read.instant("first"),
        last_at=read.instant("last"),
        versions=tuple(stored.versions.split()),
        jobs=tuple(map(JobId, stored.jobs.split())),
    )
