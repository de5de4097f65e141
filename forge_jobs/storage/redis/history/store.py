"""The history that a store keeps beside jobs, as a part of the store of jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from forge_jobs.model.failures import ErrorGroup, ErrorGroups, FailureSample
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.series import Depth, FlowSample, FlowTotal, SeriesAsk, SeriesStep
from forge_jobs.storage.history.failures import GroupsAsked, Steps
from forge_jobs.storage.history.series import SeriesAsked
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.history import failures, series


class RedisHistory:
    """The methods of :class:`~forge_jobs.storage.protocols.JobStore` about failures and series."""

    _database: Database

    async def add_failures(self, samples: Sequence[FailureSample]) -> list[FailureSample]:
        return await failures.add_failures(self._database, samples)

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
        return await failures.read_groups(self._database, asked)

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
        return await failures.read_group(self._database, queue, group, steps)

    async def add_flows(self, samples: Sequence[FlowSample]) -> list[FlowSample]:
        return await series.add_flows(self._database, samples)

    async def record_depths(self, depths: Mapping[str, Depth]) -> None:
        await series.record_depths(self._database, depths)

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
        return await series.read_series(self._database, asked)

    async def many_series(self, asked: Sequence[SeriesAsk]) -> list[list[SeriesStep]]:
        checked = [SeriesAsked.of_ask(each) for each in asked]
        return await series.read_many(self._database, checked)

    async def flow_totals(self) -> list[FlowTotal]:
        return await series.read_totals(self._database)
