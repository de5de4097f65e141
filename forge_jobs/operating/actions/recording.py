"""The records of actions, and the steps of those on many jobs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import structs

from forge_jobs import stop_points
from forge_jobs.errors import Conflict
from forge_jobs.model.actions import Action, ActionRecord, ActionState, ActionStep
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.operating.actions.values import Value, value_of
from forge_jobs.operating.base import Calls

VERBS: Mapping[str, str] = {
    "cancel_jobs": "cancel",
    "requeue_jobs": "requeue",
    "delete_jobs": "delete",
    "release_held_jobs": "release_held",
    "run_jobs_now": "run_now",
}
"""Operations on many jobs -> verbs of the job store."""

AT_ONCE = 500
"""Jobs of one step, at most."""

_LISTED = 1_000

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
        values: dict[str, object] = {
            "id": new_job_id(),
            "actor": self.actor.name,
            "surface": self.actor.surface,
            "verb": verb,
        }
        return Action(**(values | parts))  # type: ignore[arg-type]

    async def _drive(self, action: Action, heard: _Heard = _unheard) -> ActionRecord:
        """Take the steps that are left, also of a driver that has died.

        Beside another driver each of the steps is taken by one of them.
        """
        verb: Callable[..., Awaitable[BulkOutcome]] | None = None
        if action.verb in VERBS:
            verb = getattr(self.storage.jobs, VERBS[action.verb])
        try:
            while True:
                record = await self.storage.jobs.get_action(action.id)
                running = [part for part in record.parts if part.state is ActionState.RUNNING]
                if verb is None or action.which is None or not running:
                    return record
                for part in running:
                    await _take_steps(verb, action, part.queue, part.cursor, heard)
        finally:
            self.storage.jobs.announce_changes(None)

    async def _recorded(self, verb: str, target: str, change: Callable[[], Awaitable[R]]) -> R:
        """Change one value, and store the record with the value before and after."""
        value = value_of(verb)
        before = await _read(value, self, target)
        changed = await change()
        after = await _read(value, self, target)
        action = self._action(verb, target=target, before=before, after=after)
        await self.storage.jobs.put_action(action)
        return changed


async def _read(value: Value | None, calls: Calls, target: str) -> str:
    return "" if value is None else await value.read(calls.storage, target)


async def _take_steps(
    verb: Callable[..., Awaitable[BulkOutcome]],
    action: Action,
    queue: str,
    cursor: str,
    heard: _Heard,
) -> None:
    which = structs.replace(action.which or JobFilter(), queues=(queue,))
    step = ActionStep(action_id=action.id, queue=queue, cursor=cursor)
    while True:
        try:
            if stop_points.ARMED:
                await stop_points.reach("actions:before")
            outcome = await verb(which, limit=AT_ONCE, step=step)
            if stop_points.ARMED:
                await stop_points.reach("actions:committed")
        except Conflict:
            # Another driver has gone on, or the action was aborted: the record says which.
            return
        heard(outcome)
        if outcome.cursor is None:
            return
        step = structs.replace(step, cursor=outcome.cursor)
