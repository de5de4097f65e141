"""The part of the job store that keeps the history: events, counts, latencies, and their end."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.failures import ErrorGroup, ErrorGroups, FailureSample
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.metrics import MINUTE, LatencySample, MetricBucket
from forge_jobs.model.queues import QueueCounts
from forge_jobs.model.retention import KEPT, Cleaned, Kept
from forge_jobs.model.series import Depth, FlowSample, FlowTotal, SeriesAsk, SeriesStep


class BookkeepingStore(Protocol):
    """Timeline and metrics of jobs, and the removal of what is past its retention."""

    async def append_events(self, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
        """Append to the timeline.

        :returns: the events that were not stored, because their queues are silent: the caller
            keeps them and sends them again
        """
        ...

    async def events(
        self, *, job_id: JobId | None = None, queue: str | None = None, limit: int = 100
    ) -> list[TimelineEvent]:
        """Return the newest events of a job, of a queue or of all, newest first.

        A store where events are dear may keep as few as the newest 100,000 of a queue.
        """
        ...

    async def add_latencies(
        self, host_id: HostId, samples: Sequence[LatencySample]
    ) -> list[LatencySample]:
        """Add histograms of one pod to their minutes.

        :returns: the samples that were not stored, as by :meth:`append_events`
        """
        ...

    async def metrics(self, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
        """Return the minutes of one queue that counted anything, from ``since`` to before
        ``until``.

        Oldest first, summed over pods, the same before and after a roll-up. Minutes past their
        retention come as hours (see ``Kept.minutes``), each with the sums of its minutes.
        """
        ...

    async def counts(
        self, queues: Sequence[str] | None = None, *, ended_at_most: int | None = None
    ) -> dict[str, QueueCounts]:
        """Count the jobs of each status of each queue, of every known queue when ``queues`` is
        None.

        An unknown queue that is named counts no jobs. Every key of ``by_status`` is there.

        :param ended_at_most: count done, dead and cancelled jobs of a queue up to this many of each
            status. Where there are more, ``QueueCounts.more`` names the status. A store that knows
            the number without counting gives the exact one. All other numbers are always exact.
            None: exact numbers, for which a store may have to walk over every job
        :raises InvalidInput: ``ended_at_most`` is not positive
        """
        ...

    async def summaries(
        self, queues: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, MetricBucket]:
        """Return the sums of what :meth:`metrics` answers for each of the queues.

        Each bucket begins at ``since`` and is as long as the whole span. A queue that counted
        nothing is left out, and so is a queue whose part is silent. One call, however many queues
        there are.
        """
        ...

    async def add_failures(self, samples: Sequence[FailureSample]) -> list[FailureSample]:
        """Add what one pod has met to its groups of failures.

        A group's kind, type and message are those of the first sample. Where a queue has
        ``MOST_GROUPS`` groups, what would be one more is counted in the group ``OTHER``.

        :returns: the samples that were not stored, as by :meth:`append_events`
        """
        ...

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
        """Return the groups that failed in minutes from ``since`` to before ``until``.

        The group with the last failure comes first. A group that fails meanwhile may come on no
        page or on two.

        :param queue: None means all
        :param step: the counts of a group are summed in steps of this length, whole minutes since
            the epoch. The range has ``MOST_STEPS`` of them at most
        :param limit: 1 to 1,000
        :raises InvalidInput: an argument is out of range
        """
        ...

    async def error_group(
        self,
        queue: str,
        group: str,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = MINUTE,
    ) -> ErrorGroup | None:
        """Return one group as :meth:`error_groups` does, also when it did not fail in the range.

        None: the queue has no such group, or has it no more.
        """
        ...

    async def add_flows(self, samples: Sequence[FlowSample]) -> list[FlowSample]:
        """Add runs that one pod has seen end to the series of their kinds.

        The three histograms are added to the series of the queue and of the whole store too. A
        queue has ``MOST_KINDS`` kinds an hour, and all others are one, ``OTHER_KINDS``.

        :returns: the samples that were not stored, as by :meth:`append_events`
        """
        ...

    async def record_depths(self, depths: Mapping[str, Depth]) -> None:
        """Record what waits for each queue, at the store's time.

        The whole store gets the sums. Of several depths in a minute the greatest numbers count.
        Queues whose part is silent are left out.
        """
        ...

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = MINUTE,
        queue: str = "",
        kind: str = "",
    ) -> list[SeriesStep]:
        """Return the steps of a series that have anything, oldest first.

        Steps begin at whole multiples of ``step`` since the epoch, and minutes from ``since`` to
        before ``until`` count. With a step of whole hours the hours are read, which stay longer.
        With any other step an hour whose minutes have gone is a step of an hour.

        :param step: whole minutes. The range has ``MOST_STEPS`` of them at most
        :param queue: "" means the whole store
        :param kind: of the queue. "" means all kinds together
        :raises InvalidInput: the range or the step is out of range
        """
        ...

    async def many_series(self, asked: Sequence[SeriesAsk]) -> list[list[SeriesStep]]:
        """Return several series, in the order asked for, each as :meth:`series` does.

        One call, however many series. A series of a queue whose part is silent is empty.

        :raises InvalidInput: a range or a step is out of range
        """
        ...

    async def flow_totals(self) -> list[FlowTotal]:
        """Return what every queue and each of the kinds has counted, for counters that never fall.

        Totals go by queue and kind, and end with the deletion of their queue. No retention takes
        them away. Counts of a queue are those of minutes that are rolled up. A queue has
        ``MOST_KINDS`` kinds in all, and further ones are ``OTHER_KINDS``. Queues whose part is
        silent are left out.
        """
        ...

    async def roll_up(self, limit: int) -> int:
        """Fold per-pod counters and histograms of closed minutes into one row per queue and minute.

        A roll-up never changes the sums that :meth:`metrics` answers. Oldest minutes first. The
        folded counters are added to the series of the queue and of the whole store.

        :param limit: rows to fold at most
        :returns: how many rows were folded
        """
        ...

    async def cleanup(
        self, limit: int, rest: object | None = None, *, kept: Kept = KEPT
    ) -> Cleaned:
        """Run one batch of a pass of retention. Pass ``Cleaned.rest`` on until ``rest`` is None.

        Removes ended jobs by the age and count that their queues keep, results past their own time,
        and history past ``kept``, of which minutes become hours first. A batch has at most
        ``limit`` jobs, and no more than a store removes in a moment, so that others need not wait:
        30 ms on SQLite, 200 on Postgres, one script on Redis.

        Queues go in the order of their names. Within a queue, done jobs go first, then dead ones,
        then cancelled ones, and of these the oldest first. A job that ended less than a minute ago
        stays under any rule, and so does a seeded job (``is_seed_id``). A job that the database
        refuses to remove is skipped and named in
        ``Cleaned.held``.

        :param rest: ``Cleaned.rest`` of the batch before, None to begin a new pass
        """
        ...
