"""Flow, delays, runs and depth over time, as documents."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.names import check_name
from forge_jobs.model.series import Depth, SeriesStep
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.metrics.latencies import LAST_HOUR, Percentiles, percentiles_of


class StepView(Struct, frozen=True, kw_only=True):
    """A step of a series.

    :param length: as asked for, or an hour where minutes are no longer kept
    :param counts: by the names of the counters
    :param delay: from due to the start of the handler
    :param run: from the start of the handler to its end
    :param total: from due to the end of the run
    :param depth: the greatest values of the step. None for a kind, and where no pod has led
    """

    at: datetime
    length: timedelta
    counts: Mapping[str, int]
    delay: Percentiles
    run: Percentiles
    total: Percentiles
    depth: Depth | None


class Series(Struct, frozen=True, kw_only=True):
    """A series: flow and depth over a span of time, oldest first. Empty steps are left out.

    :param queue: None for the whole store
    :param kind: None for all kinds
    """

    queue: str | None
    kind: str | None
    since: datetime
    until: datetime
    step: timedelta
    steps: tuple[StepView, ...]


class SeriesCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def series(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        over: timedelta = LAST_HOUR,
        step: timedelta = MINUTE,
        until: datetime | None = None,
    ) -> Series:
        """Flow, delays, lengths of runs and depth of the store, a queue or a kind over time.

        Minutes are kept for 30 days and hours for 400, where no setting says otherwise.

        :param kind: of the queue
        :param over: how far back
        :param step: whole minutes, at most 2,000 of them
        :param until: None for now
        :raises NotFound: the queue is closed to the actor
        :raises InvalidInput: span or step are out of range, or a kind without a queue
        """
        self.actor.need(Right.READ)
        if queue is None:
            # The whole store tells of queues that may be closed.
            self.actor.need(Right.QUEUES)
            if kind is not None:
                raise InvalidInput("kind", "is given without a queue", "give the queue too")
        else:
            self._may_see(check_name("queue", queue))
        return await self._series(queue, kind, over, step, until)

    async def _series(
        self,
        queue: str | None,
        kind: str | None,
        over: timedelta,
        step: timedelta,
        until: datetime | None,
    ) -> Series:
        if over <= timedelta(0):
            raise InvalidInput("over", f"is {over}", "give a duration above zero, as 1h")
        if kind is not None:
            check_name("kind", kind)
        end = await self.storage.cron.now() + MINUTE if until is None else until
        try:
            since = end - over
        except OverflowError:
            raise InvalidInput("over", "is too long", "give a duration, as 30d") from None
        found = await self.storage.jobs.series(
            since, end, step=step, queue=queue or "", kind=kind or ""
        )
        steps = tuple(_views(found))
        return Series(queue=queue, kind=kind, since=since, until=end, step=step, steps=steps)


def _views(steps: Sequence[SeriesStep]) -> list[StepView]:
    return [
        StepView(
            at=each.at,
            length=each.length,
            counts=dict(each.counts),
            delay=percentiles_of(each.delay),
            run=percentiles_of(each.processing),
            total=percentiles_of(each.total),
            depth=each.depth,
        )
        for each in steps
    ]
