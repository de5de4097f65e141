"""The history that a store keeps beside jobs, as a part of the store of jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from forge_jobs.model.failures import ErrorGroup, ErrorGroups, FailureSample
from forge_jobs.model.ids import JobId
from forge_jobs.model.letters.outbox import OutboxRecord, OutboxState
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.series import Depth, FlowSample, FlowTotal, SeriesAsk, SeriesStep
from forge_jobs.storage.history.failures import GroupsAsked, Steps
from forge_jobs.storage.history.series import SeriesAsked
from forge_jobs.storage.protocols.letters import OutboxStore
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.history import failures, series


class SqlHistory:
    """The methods of :class:`~forge_jobs.storage.protocols.JobStore` about failures and series.

    And the outboxes of the database, which no pod without one imports.
    """

    _database: Database

    def outbox(self, destination: str) -> OutboxStore:
        """See ``HasOutbox``."""
        from forge_jobs.storage.sql.letters.outbox import SqlOutbox

        return SqlOutbox(self._database, destination)

    async def outboxes(self) -> Mapping[str, OutboxState]:
        """See ``HasOutbox``."""
        from forge_jobs.storage.sql.letters.outbox import outbox_states

        return await outbox_states(self._database)

    async def outbox_record(self, job_id: JobId) -> tuple[str, OutboxRecord] | None:
        """See ``HasOutbox``."""
        from forge_jobs.storage.sql.letters.outbox import outbox_record

        return await outbox_record(self._database, job_id)

    async def add_failures(self, samples: Sequence[FailureSample]) -> list[FailureSample]:
        await self._database.write(lambda tx: failures.add_failures(tx, samples))
        return []

    async def error_groups(
        self,
        since: datetime,
        until: datetime,
        *,
        queue: str | None = None,
        step: timedelta = MINUTE,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ErrorGroups:
        steps = Steps.of(since, until, step)
        asked = GroupsAsked.of(steps, queue=queue, cursor=cursor, limit=limit)
        return await self._database.read(lambda tx: failures.read_groups(tx, asked))

    async def error_group(
        self,
        queue: str,
        group: str,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = MINUTE,
    ) -> ErrorGroup | None:
        steps = Steps.of(since, until, step)
        return await self._database.read(lambda tx: failures.read_group(tx, queue, group, steps))

    async def add_flows(self, samples: Sequence[FlowSample]) -> list[FlowSample]:
        await self._database.write(lambda tx: series.add_flows(tx, samples))
        return []

    async def record_depths(self, depths: Mapping[str, Depth]) -> None:
        await self._database.write(lambda tx: series.record_depths(tx, depths))

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = MINUTE,
        queue: str = "",
        kind: str = "",
    ) -> list[SeriesStep]:
        asked = SeriesAsked.of(since, until, step, queue=queue, kind=kind)
        [steps] = await self._database.read(lambda tx: series.read_many(tx, [asked]))
        return steps

    async def many_series(self, asked: Sequence[SeriesAsk]) -> list[list[SeriesStep]]:
        checked = [SeriesAsked.of_ask(each) for each in asked]
        return await self._database.read(lambda tx: series.read_many(tx, checked))

    async def flow_totals(self) -> list[FlowTotal]:
        return await self._database.read(series.read_totals)
