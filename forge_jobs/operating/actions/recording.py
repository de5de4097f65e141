"""The records of actions, and the steps of those on many jobs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import anyio
from msgspec import structs

from forge_jobs import stop_points
from forge_jobs.clients.records.changing import change_one
from forge_jobs.clock import SystemClock
from forge_jobs.errors import Conflict
from forge_jobs.model.actions import Action, ActionPart, ActionRecord, ActionState, ActionStep
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.names import check_stored_text
from forge_jobs.operating.base import Calls
from forge_jobs.storage.protocols import Storage

VERBS: Mapping[str, str] = {
    "cancel_jobs": "cancel",
    "requeue_jobs": "requeue",
    "restore_jobs": "restore",
    "delete_jobs": "delete",
    "release_held_jobs": "release_held",
    "run_jobs_now": "run_now",
}
"""Operations on many jobs -> verbs of the job store."""

AT_ONCE = 500
"""Jobs of one step, at most."""

UNHURRIED_FROM = 4
"""Steps of one driver that follow each other at once. Later ones leave the store to the pods."""

RESTS = 4.0
"""How long a driver rests after a later step, in lengths of that step."""

LONGEST_REST = 1.0
"""Seconds. Who looks for actions that stand still waits much longer."""

_LISTED = 1_000

_elapsed = SystemClock.elapsed

R = TypeVar("R")
_Heard = Callable[[BulkOutcome], None]


def _unheard(_: BulkOutcome) -> None: ...


class RecordedCalls(Calls):
    """The base of calls that leave a record."""

    async def _queues_of(self, which: JobFilter) -> tuple[list[str], set[JobId]]:
        """The queues that have jobs which are meant, and those of the named jobs that exist."""
        if which.ids is None:
            known = [state.name for state in await self.storage.config.queues()]
            meant = [name for name in known if not which.queues or name in which.queues]
            return [name for name in meant if self.actor.sees(name)], set()
        queues: set[str] = set()
        found: set[JobId] = set()
        ids = sorted(set(which.ids))
        for start in range(0, len(ids), _LISTED):
            some = JobFilter(ids=tuple(ids[start : start + _LISTED]))
            for job in (await self.storage.jobs.list(some, limit=_LISTED)).jobs:
                if self.actor.sees(job.queue):
                    found.add(job.id)
                    queues.add(job.queue)
        return sorted(queues), found

    def _action(self, verb: str, **parts: object) -> Action:
        check_stored_text("reason", str(parts.get("reason", "")))
        values: dict[str, object] = {
            "id": new_job_id(),
            "actor": self.actor.name,
            "surface": self.actor.surface,
            "verb": verb,
        }
        return Action(**(values | parts))  # type: ignore[arg-type]

    async def _drive(self, action: Action, heard: _Heard = _unheard) -> ActionRecord:
        return await drive(self.storage, action, heard)

    async def _recorded(
        self, verb: str, target: str, change: Callable[[], Awaitable[R]], *concerns: str
    ) -> R:
        """Change one value, with a record of the value before and after.

        :param concerns: the queues of the value, before and after
        """
        action = self._action(verb, target=target, concerns=tuple(sorted(set(concerns))))
        changed, _ = await self._change_one(action, change)
        return changed

    async def _change_one(
        self, action: Action, change: Callable[[], Awaitable[R]]
    ) -> tuple[R, ActionRecord]:
        """Store the record, change one value, and settle the record. See :func:`change_one`."""
        return await change_one(self.storage, action, change)


class Pace:
    """The pace of a driver: a large action takes a fifth of the time, and pods have the rest."""

    def __init__(self) -> None:
        self._steps = 0

    def rest(self, took: float) -> float:
        """Return how many seconds to rest after one more step.

        :param took: the length of the step in seconds
        """
        self._steps += 1
        return 0.0 if self._steps < UNHURRIED_FROM else min(RESTS * took, LONGEST_REST)


async def drive(storage: Storage, action: Action, heard: _Heard = _unheard) -> ActionRecord:
    """Take the steps that are left, also of a driver that has died.

    Beside another driver each of the steps is taken by one of them.
    """
    verb: Callable[..., Awaitable[BulkOutcome]] | None = None
    if action.verb in VERBS:
        verb = getattr(storage.jobs, VERBS[action.verb])
    pace = Pace()
    try:
        while True:
            record = await storage.jobs.get_action(action.id)
            running = [part for part in record.parts if part.state is ActionState.RUNNING]
            if verb is None or action.which is None or not running:
                return record
            for part in running:
                await _take_steps(storage, verb, action, part, heard, pace=pace)
    finally:
        storage.jobs.announce_changes(None)


async def _met(storage: Storage, action_id: str, cursor: str) -> tuple[JobId, ...]:
    """The next jobs that the action has changed or asked for, one more than a step takes: so the
    step knows whether there are more."""
    beyond = cursor or None
    return tuple(await storage.jobs.action_jobs(action_id, beyond=beyond, limit=AT_ONCE + 1))


async def _take_steps(
    storage: Storage,
    verb: Callable[..., Awaitable[BulkOutcome]],
    action: Action,
    part: ActionPart,
    heard: _Heard,
    *,
    pace: "Pace",
) -> None:
    which = structs.replace(action.which or JobFilter(), queues=(part.queue,))
    step = ActionStep(action_id=action.id, queue=part.queue, cursor=part.cursor)
    while True:
        if action.undoes:
            which = structs.replace(which, ids=await _met(storage, action.undoes, step.cursor))
        try:
            if stop_points.ARMED:
                await stop_points.reach("actions:before")
            began = _elapsed()
            outcome = await verb(which, limit=AT_ONCE, step=step)
            took = _elapsed() - began
            if stop_points.ARMED:
                await stop_points.reach("actions:committed")
        except Conflict:
            # Another driver has gone on, or the action was aborted: the record says which.
            return
        heard(outcome)
        if outcome.cursor is None:
            return
        step = structs.replace(step, cursor=outcome.cursor)
        await anyio.sleep(pace.rest(took))
