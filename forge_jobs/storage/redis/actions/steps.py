"""A step of an action: the script that changes the jobs of a queue advances the part."""

from forge_jobs.model.actions import JOBS_KEPT, ActionStep
from forge_jobs.model.ids import JobId
from forge_jobs.storage.actions import moved
from forge_jobs.storage.redis.base.requests import ActionFields

_MOVED, _STOPPED = "moved", "stopped"
_KEPT_S = int(JOBS_KEPT.total_seconds())

Outcomes = list[tuple[JobId, str]]


def packed(step: ActionStep, to: str | None) -> ActionFields:
    """Return the step as scripts read one.

    :param to: the cursor after the step. None: all jobs of the queue are visited
    """
    return ActionFields(step.action_id, step.cursor, to or "", _KEPT_S)


def read_step(step: ActionStep, outcomes: Outcomes, to: str | None) -> tuple[Outcomes, str | None]:
    """Return the outcomes of the jobs, and the new cursor.

    :raises Conflict: the part has gone on, or was aborted
    """
    if not outcomes:
        return outcomes, to
    last, what = outcomes[-1]
    if what == _MOVED:
        raise moved(step)
    return (outcomes[:-1], last) if what == _STOPPED else (outcomes, to)
