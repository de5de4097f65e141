"""The part of the job store that keeps records of actions."""

from forge_jobs.model.actions import Action, ActionRecord
from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.actions import records
from forge_jobs.storage.redis.base.database import Database


class RecordCalls:
    """A part of the methods of the job store. See ``OperatedStore``."""

    _database: Database

    async def put_action(self, action: Action) -> ActionRecord:
        """See ``OperatedStore``."""
        return await records.put_action(self._database, action)

    async def get_action(self, action_id: str) -> ActionRecord:
        """See ``OperatedStore``."""
        return await records.get_action(self._database, action_id)

    async def actions(self, *, below: str | None = None, limit: int = 50) -> list[ActionRecord]:
        """See ``OperatedStore``."""
        return await records.list_actions(self._database, below, limit)

    async def abort_action(self, action_id: str) -> ActionRecord:
        """See ``OperatedStore``."""
        return await records.abort_action(self._database, action_id)

    async def settle_action(self, action: Action) -> ActionRecord:
        """See ``OperatedStore``."""
        return await records.settle_action(self._database, action)

    async def action_jobs(
        self, action_id: str, *, beyond: str | None = None, limit: int = 1000
    ) -> list[JobId]:
        """See ``OperatedStore``."""
        return await records.action_jobs_of(self._database, action_id, beyond, limit)
