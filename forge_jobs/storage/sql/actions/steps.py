"""A step of an action: the part is advanced in the transaction that changes the jobs."""

import msgspec
from sqlalchemy import bindparam, insert, select, update

from forge_jobs.errors import Conflict
from forge_jobs.model.actions import ActionState, ActionStep
from forge_jobs.model.filters import BulkOutcome
from forge_jobs.storage.actions import added, moved
from forge_jobs.storage.sql.base.action_tables import action_jobs, action_parts
from forge_jobs.storage.sql.base.transaction import Tx

_IS_PART = (
    action_parts.c.action_id == bindparam("of_action"),
    action_parts.c.queue == bindparam("of_queue"),
)
_PART = select(action_parts).where(*_IS_PART).with_for_update()
_ADVANCE = update(action_parts).where(*_IS_PART)
_NOTE = insert(action_jobs)


def begin_step(tx: Tx, step: ActionStep) -> None:
    """Lock the part.

    :raises Conflict: the part has gone on, or was aborted
    """
    row = tx.execute(_PART, {"of_action": step.action_id, "of_queue": step.queue}).first()
    if row is None or row.state != ActionState.RUNNING.value or row.cursor != step.cursor:
        raise moved(step)


def end_step(tx: Tx, step: ActionStep, outcome: BulkOutcome, to: str | None) -> None:
    """Advance the part by what became of the jobs.

    :param to: the new cursor. None: all jobs of the queue were visited
    """
    asked = {"of_action": step.action_id, "of_queue": step.queue}
    row = tx.execute(_PART, asked).first()
    if row is None:
        raise Conflict(
            f"the record of action {step.action_id} was removed while a step ran; preview again"
        )
    values: dict[str, object] = {
        "changed": row.changed + len(outcome.changed),
        "requested": row.requested + len(outcome.requested),
        "refused": msgspec.json.encode(added(row.refused, outcome.refused.values())).decode(),
    }
    if to is None:
        values["state"] = ActionState.DONE.value
    else:
        values["cursor"] = to
    tx.execute(_ADVANCE.values(**values), asked)
    met = [*outcome.changed, *outcome.requested]
    if met:
        tx.execute(
            _NOTE,
            [{"action_id": step.action_id, "job_id": job_id, "at": tx.now} for job_id in met],
        )
