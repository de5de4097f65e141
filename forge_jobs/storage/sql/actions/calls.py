"""The part of the job store that keeps records of actions."""

from forge_jobs.model.actions import Action, ActionRecord
from forge_jobs.model.ids import JobId
from forge_jobs.storage.sql.actions import records
from forge_jobs.storage.sql.base.database import Database


class RecordCalls:
    """A part of the methods of the job store. See ``OperatedStore``."""

    _database: Database

    async def put_action(self, action: Action) -> ActionRecord:
        """See ``OperatedStore``."""
        return await self._database.write(lambda tx: records.put_action(tx, action))

    async def get_action(self, action_id: str) -> ActionRecord:
        """See ``OperatedStore``."""
        return await self._database.read(lambda tx: records.get_action(tx, action_id))

    async def actions(self, *, below: str | None = None, limit: int = 50) -> list[ActionRecord]:
        """See ``OperatedStore``."""
        return await self._database.read(lambda tx: records.list_actions(tx, below, limit))

    async def abort_action(self, action_id: str) -> ActionRecord:
        """See ``OperatedStore``."""
        return await self._database.write(lambda tx: records.abort_action(tx, action_id))

    async def settle_action(self, action: Action) -> ActionRecord:
        """See ``OperatedStore``."""
        return await self._database.write(lambda tx: records.settle_action(tx, action))

    async def action_jobs(
        self, action_id: str, *, beyond: str | None = None, limit: int = 1000
    ) -> list[JobId]:
        """See ``OperatedStore``."""
        return await self._database.read(
            lambda tx: records.action_jobs_of(tx, action_id, beyond, limit)
        )
