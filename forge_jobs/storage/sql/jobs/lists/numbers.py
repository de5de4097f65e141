"""The numbers of queues, as a part of the store of jobs."""

from collections.abc import Sequence
from datetime import datetime

from forge_jobs.model.metrics import MetricBucket
from forge_jobs.model.queues import QueueCounts
from forge_jobs.storage.cursors import check_ended
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.lists.statuses import counts
from forge_jobs.storage.sql.jobs.lists.summaries import summaries
from forge_jobs.storage.sql.jobs.metrics import metrics, metrics_of_hours


class SqlNumbers:
    """The methods of :class:`~forge_jobs.storage.protocols.JobStore` about numbers of queues."""

    _database: Database

    async def counts(
        self, queues: Sequence[str] | None = None, *, ended_at_most: int | None = None
    ) -> dict[str, QueueCounts]:
        check_ended(ended_at_most)
        return await self._database.read(lambda tx: counts(tx, queues, ended_at_most))

    async def metrics(self, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
        def script(tx: Tx) -> list[MetricBucket]:
            found = metrics_of_hours(tx, queue, since, until) + metrics(tx, queue, since, until)
            return sorted(found, key=lambda bucket: bucket.minute)

        return await self._database.read(script)

    async def summaries(
        self, queues: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, MetricBucket]:
        return await self._database.read(lambda tx: summaries(tx, queues, since, until))
