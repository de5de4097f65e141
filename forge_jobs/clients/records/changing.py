"""The change of one value, with a record of the value before and after."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from msgspec import structs

from forge_jobs import stop_points
from forge_jobs.clients.records.values import value_of
from forge_jobs.errors import ForgeJobsError, Unavailable
from forge_jobs.model.actions import Action, ActionRecord, ActionState
from forge_jobs.storage.protocols import Storage

R = TypeVar("R")


async def change_one(
    storage: Storage, action: Action, change: Callable[[], Awaitable[R]]
) -> tuple[R, ActionRecord]:
    """Store the record, change one value, and settle the record.

    Of a value that has no reader the action brings what was before, and what is asked for.
    A program that dies in between leaves a record that runs: ``Continuing`` settles that one.
    """
    jobs, value = storage.jobs, value_of(action.verb)
    if value is not None:
        before = await value.read(storage, action.target)
        action = structs.replace(action, before=before)
    record = await jobs.put_action(structs.replace(action, settled=ActionState.RUNNING))
    if stop_points.ARMED:
        await stop_points.reach("actions:recorded")
    try:
        changed = await change()
    except Unavailable:
        # Perhaps the store has made the change.
        raise
    except ForgeJobsError:
        with suppress(Unavailable):
            await jobs.settle_action(
                structs.replace(action, after=action.before, settled=ActionState.ABORTED)
            )
        raise
    if stop_points.ARMED:
        await stop_points.reach("actions:changed")
    with suppress(Unavailable):
        # The change is made. Another program settles the record when this one cannot.
        after = action.after
        if value is not None:
            after = await value.read(storage, action.target)
        record = await jobs.settle_action(
            structs.replace(action, after=after, settled=ActionState.DONE)
        )
    return changed, record
