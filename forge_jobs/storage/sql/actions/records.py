"""Records of actions: stored once, read, aborted, forgotten."""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, insert, select, tuple_, update

from forge_jobs.errors import NotFound
from forge_jobs.model.actions import WITH_TIME, Action, ActionPart, ActionRecord, ActionState
from forge_jobs.model.ids import JobId
from forge_jobs.storage.actions import (
    JOBS_KEPT_US,
    RECORDS_KEPT_US,
    action_of,
    counts_of,
    document_of,
    part_of,
)
from forge_jobs.storage.cursors import check_limit
from forge_jobs.storage.sql.base.action_tables import action_jobs, action_parts, actions
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.transaction import Tx

_FORGOTTEN_AT_ONCE = 1_000

_ONE = select(actions).where(actions.c.id == bindparam("action"), actions.c.at > bindparam("since"))
_LOCKED = _ONE.with_for_update()
_SETTLE = update(actions).where(actions.c.id == bindparam("action"))
_PUT = insert(actions)
_PUT_PARTS = insert(action_parts)
_NEWEST = (
    select(actions)
    .where(
        actions.c.id < bindparam("below"),
        actions.c.id >= WITH_TIME,
        actions.c.at > bindparam("since"),
    )
    .order_by(actions.c.id.desc())
    .limit(bindparam("count"))
)
_PARTS = (
    select(action_parts)
    .where(one_of(action_parts.c.action_id, "ids"))
    .order_by(action_parts.c.action_id, action_parts.c.queue)
)
_ABORT = (
    update(action_parts)
    .where(
        action_parts.c.action_id == bindparam("action"),
        action_parts.c.state == ActionState.RUNNING.value,
    )
    .values(state=ActionState.ABORTED.value)
)
_JOBS = (
    select(action_jobs.c.job_id)
    .where(
        action_jobs.c.action_id == bindparam("action"),
        action_jobs.c.job_id > bindparam("beyond"),
        action_jobs.c.at > bindparam("since"),
    )
    .order_by(action_jobs.c.job_id)
    .limit(bindparam("count"))
)
_PAST_ACTIONS = (
    select(actions.c.id)
    .where(actions.c.at <= bindparam("until"))
    .order_by(actions.c.id)
    .limit(_FORGOTTEN_AT_ONCE)
)
_PAST_JOBS = (
    select(action_jobs.c.action_id, action_jobs.c.job_id)
    .where(action_jobs.c.at <= bindparam("until"))
    .order_by(action_jobs.c.at)
    .limit(_FORGOTTEN_AT_ONCE)
)
_BEYOND_ALL = "~"


def put_action(tx: Tx, action: Action) -> ActionRecord:
    """See ``JobStore.put_action``."""
    document = document_of(action)
    if _found(tx, action.id) is None:
        _forget(tx)
        tx.execute(_PUT, {"id": action.id, "at": tx.now, "document": document})
        parts = [
            {
                "action_id": action.id,
                "queue": queue,
                "state": ActionState.RUNNING.value,
                "cursor": "",
                "changed": 0,
                "requested": 0,
                "refused": "{}",
            }
            for queue in sorted(set(action.queues))
        ]
        if parts:
            tx.execute(_PUT_PARTS, parts)
    return get_action(tx, action.id)


def _forget(tx: Tx) -> None:
    """Remove some of the records and ids that are past their time."""
    past = tx.execute(_PAST_ACTIONS, {"until": tx.now - RECORDS_KEPT_US}).scalars().all()
    if past:
        for table, column in ((action_parts, action_parts.c.action_id), (actions, actions.c.id)):
            tx.execute(delete(table).where(one_of(column, "ids")), {"ids": list(past)})
    jobs = tx.execute(_PAST_JOBS, {"until": tx.now - JOBS_KEPT_US}).all()
    if jobs:
        keys = [(row.action_id, row.job_id) for row in jobs]
        tx.execute(
            delete(action_jobs).where(
                tuple_(action_jobs.c.action_id, action_jobs.c.job_id).in_(keys)
            )
        )


def _found(tx: Tx, action_id: str) -> JobRow | None:
    asked = {"action": action_id, "since": tx.now - RECORDS_KEPT_US}
    row: JobRow | None = tx.execute(_ONE, asked).first()
    return row


def get_action(tx: Tx, action_id: str) -> ActionRecord:
    """See ``JobStore.get_action``."""
    row = _found(tx, action_id)
    if row is None:
        raise NotFound(f"there is no action {action_id}; the record is kept for 400 days")
    return _records(tx, [row])[0]


def list_actions(tx: Tx, below: str | None, limit: int) -> list[ActionRecord]:
    """See ``JobStore.actions``."""
    check_limit(limit)
    asked = {"below": below or _BEYOND_ALL, "count": limit, "since": tx.now - RECORDS_KEPT_US}
    rows = tx.execute(_NEWEST, asked).all()
    return _records(tx, rows)


def abort_action(tx: Tx, action_id: str) -> ActionRecord:
    """See ``JobStore.abort_action``."""
    get_action(tx, action_id)
    tx.execute(_ABORT, {"action": action_id})
    return get_action(tx, action_id)


def settle_action(tx: Tx, action: Action) -> ActionRecord:
    """See ``JobStore.settle_action``."""
    document = document_of(action)
    row = tx.execute(_LOCKED, {"action": action.id, "since": tx.now - RECORDS_KEPT_US}).first()
    if row is not None and action_of(action.id, row.document).settled is ActionState.RUNNING:
        tx.execute(_SETTLE.values(document=document), {"action": action.id})
    return get_action(tx, action.id)


def action_jobs_of(tx: Tx, action_id: str, beyond: str | None, limit: int) -> list[JobId]:
    """See ``JobStore.action_jobs``."""
    check_limit(limit)
    asked = {
        "action": action_id,
        "beyond": beyond or "",
        "since": tx.now - JOBS_KEPT_US,
        "count": limit,
    }
    return [JobId(job_id) for job_id in tx.execute(_JOBS, asked).scalars()]


def _records(tx: Tx, rows: Sequence[JobRow]) -> list[ActionRecord]:
    parts: dict[str, list[ActionPart]] = {row.id: [] for row in rows}
    if rows:
        for row in tx.execute(_PARTS, {"ids": list(parts)}):
            parts[row.action_id].append(
                part_of(
                    row.queue,
                    state=row.state,
                    cursor=row.cursor,
                    changed=row.changed,
                    requested=row.requested,
                    refused=counts_of(row.refused),
                )
            )
    return [
        ActionRecord(
            action=action_of(row.id, row.document, row.at),
            parts=tuple(parts[row.id]),
        )
        for row in rows
    ]
