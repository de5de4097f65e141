"""Records of actions, in the fleet's slot, and their parts, each in the slot of a queue.

Both end by themselves.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from forge_jobs.errors import NotFound
from forge_jobs.model.actions import (
    RECORDS_KEPT,
    Action,
    ActionPart,
    ActionRecord,
    ActionState,
)
from forge_jobs.model.ids import JobId
from forge_jobs.storage.actions import (
    JOBS_KEPT_US,
    RECORDS_KEPT_US,
    action_of,
    document_of,
    part_of,
)
from forge_jobs.storage.cursors import check_limit
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_each_queue, in_some_queues
from forge_jobs.storage.redis.base.scripts import request_of

_KEPT_S = int(RECORDS_KEPT.total_seconds())
_REFUSED = "r:"


class _Stored(Struct, frozen=True, array_like=True):
    """The answer of ``get_actions.lua`` about an action.

    :param at: False where the time cannot be read
    """

    id: str
    at: int | bool
    document: str
    age: int


async def put_action(db: Database, action: Action) -> ActionRecord:
    """See ``JobStore.put_action``. Parts come first: a record without them would seem done."""
    document = document_of(action)
    if action.queues:
        request = request_of("put_part", id=action.id, seconds=_KEPT_S)
        await in_each_queue(db, "put_part", sorted(set(action.queues)), request, bool)
    request = request_of("put_action", id=action.id, document=document, seconds=_KEPT_S)
    await db.run_one("put_action", db.keys.fleet, request, bool)
    return await get_action(db, action.id)


async def get_action(db: Database, action_id: str) -> ActionRecord:
    """See ``JobStore.get_action``."""
    found = await _stored(db, [action_id], "", 0)
    if not found:
        raise NotFound(f"there is no action {action_id}; the record is kept for 400 days")
    return (await _records(db, found))[0]


async def list_actions(db: Database, below: str | None, limit: int) -> list[ActionRecord]:
    """See ``JobStore.actions``."""
    check_limit(limit)
    return await _records(db, await _stored(db, [], below or "", limit))


async def abort_action(db: Database, action_id: str) -> ActionRecord:
    """See ``JobStore.abort_action``."""
    queues = (await get_action(db, action_id)).action.queues
    await in_each_queue(db, "abort_part", sorted(set(queues)), action_id, bool)
    return await get_action(db, action_id)


async def settle_action(db: Database, action: Action) -> ActionRecord:
    """See ``JobStore.settle_action``."""
    document = document_of(action)
    for stored in await _stored(db, [action.id], "", 0):
        if action_of(action.id, stored.document).settled is ActionState.RUNNING:
            request = request_of(
                "settle_action", id=action.id, before=stored.document, document=document
            )
            await db.run_one("settle_action", db.keys.fleet, request, bool)
    return await get_action(db, action.id)


async def action_jobs_of(
    db: Database, action_id: str, beyond: str | None, limit: int
) -> list[JobId]:
    """See ``JobStore.action_jobs``."""
    check_limit(limit)
    found = await _stored(db, [action_id], "", 0)
    young = [each for each in found if each.age < JOBS_KEPT_US]
    actions = [action_of(action_id, each.document) for each in young]
    queues = sorted({queue for action in actions for queue in action.queues})
    met = await in_each_queue(db, "acted", queues, action_id, list[JobId])
    ids = (job_id for found in met.values() for job_id in found if job_id > (beyond or ""))
    return heapq.nsmallest(limit, ids)


async def _stored(db: Database, ids: Sequence[str], below: str, most: int) -> list[_Stored]:
    request = request_of("get_actions", ids=ids, below=below, most=most, kept=RECORDS_KEPT_US)
    return await db.run_one("get_actions", db.keys.fleet, request, list[_Stored])


async def _records(db: Database, found: Sequence[_Stored]) -> list[ActionRecord]:
    read = [action_of(each.id, each.document, each.at) for each in found]
    asked: defaultdict[str, list[str]] = defaultdict(list)
    for action in read:
        for queue in sorted(set(action.queues)):
            asked[queue].append(action.id)
    parts: dict[tuple[str, str], ActionPart] = {}
    heard: set[str] = set()
    for some in _by_request(asked):
        answers = await in_some_queues(db, "parts", some[1], some[0], list[list[str]])
        heard |= set(answers)
        for queue, flat in answers.items():
            for action_id, fields in zip(some[0], flat, strict=True):
                parts[action_id, queue] = _part(queue, fields)
    return [
        ActionRecord(
            action=action,
            parts=tuple(
                parts[action.id, queue] for queue in sorted(set(action.queues)) if queue in heard
            ),
            silent=tuple(queue for queue in sorted(set(action.queues)) if queue not in heard),
        )
        for action in read
    ]


def _by_request(asked: dict[str, list[str]]) -> Iterable[tuple[list[str], list[str]]]:
    """Ids and the queues that are asked for just these."""
    same: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for queue, ids in asked.items():
        same[tuple(ids)].append(queue)
    return ((list(ids), queues) for ids, queues in same.items())


def _part(queue: str, flat: Sequence[str]) -> ActionPart:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return part_of(
        queue,
        # A part that is gone had the time of its record.
        state=fields.get("state", ActionState.DONE.value),
        cursor=fields.get("cursor", ""),
        changed=_number(fields.get("changed")),
        requested=_number(fields.get("requested")),
        refused={
            name.removeprefix(_REFUSED): _number(number)
            for name, number in fields.items()
            if name.startswith(_REFUSED)
        },
    )


def _number(stored: str | None) -> int:
    return int(stored) if stored and stored.isdecimal() else 0
