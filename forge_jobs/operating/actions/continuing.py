"""Goes on with actions whose program has died."""

from contextlib import suppress

from msgspec import structs

from forge_jobs.clients.records.values import value_of
from forge_jobs.errors import StorageError
from forge_jobs.model.actions import ActionRecord, ActionState
from forge_jobs.operating.actions.editing import EDIT_JOB, is_edited
from forge_jobs.operating.actions.recording import drive
from forge_jobs.storage.protocols import Storage

LOOKED_AT = 200
"""Actions that a look reads: the newest."""


class Continuing:
    """Looks from time to time for actions that have stood still since the look before.

    A step takes less than a second, so such a program is dead, or frozen. Of a frozen one no step
    is taken twice.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: dict[str, ActionRecord] = {}

    async def go_on_once(self) -> int:
        """Look, and end what has stood still. Return how many actions were ended or tried.

        :raises Unavailable: the store is silent
        """
        found = await self._storage.jobs.actions(limit=LOOKED_AT)
        running = {each.action.id: each for each in found if each.state is ActionState.RUNNING}
        still = [each for name, each in running.items() if self._seen.get(name) == each]
        self._seen = running
        for record in still:
            # A queue of one action that is silent keeps no other action waiting.
            with suppress(StorageError):
                await self._end(record)
        return len(still)

    async def _end(self, record: ActionRecord) -> None:
        action = record.action
        if action.settled is not ActionState.RUNNING:
            await drive(self._storage, action)
            return
        after, value = action.before, value_of(action.verb)
        if value is not None:
            after = await value.read(self._storage, action.target)
        elif action.verb == EDIT_JOB and await is_edited(self._storage, action):
            after = action.after
        settled = ActionState.ABORTED if after == action.before else ActionState.DONE
        await self._storage.jobs.settle_action(
            structs.replace(action, after=after, settled=settled)
        )
