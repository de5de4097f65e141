"""The part of the job store that keeps the history: events, counts, latencies, and their end."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.metrics import LatencySample, MetricBucket
from forge_jobs.model.retention import KEPT, Cleaned, Kept


class BookkeepingStore(Protocol):
    """What is told about jobs, and for how long it and they are kept."""

    async def append_events(self, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
        """Append to the timeline.

        :returns: the events that were not stored, because their queues are silent: the caller
            keeps them and sends them again
        """
        ...

    async def events(
        self, *, job_id: JobId | None = None, queue: str | None = None, limit: int = 100
    ) -> list[TimelineEvent]:
        """The newest events of a job, of a queue or of all, newest first.

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
        """Minutes of one queue with anything in them, from ``since`` to before ``until``.

        Oldest first, summed over pods; the same before and after a roll-up. What is past its
        minutes comes as hours (see ``Kept.minutes``), each with the sums of its minutes.
        """
        ...

    async def roll_up(self, limit: int) -> int:
        """Fold per-pod counters and histograms of closed minutes into one row per queue and minute.

        Oldest first, at most ``limit`` rows folded; how many. The sums that :meth:`metrics` answers
        never change by it.
        """
        ...

    async def cleanup(
        self, limit: int, rest: object | None = None, *, kept: Kept = KEPT
    ) -> Cleaned:
        """One batch of a pass of retention; pass ``Cleaned.rest`` on until it is None.

        Removes ended jobs by the age and count that their queues keep, results past their own
        time, and history past ``kept``, of which minutes become hours first. At most ``limit`` jobs
        a batch, and no more than a store removes in a moment, so that others need not wait: 30 ms
        on SQLite, 200 on Postgres, one script on Redis.

        In the order of the names of queues; in each done, dead, then cancelled jobs; of these the
        oldest first. A job that ended less than a minute ago stays, whatever the rules say. A job
        that the database refuses to remove is passed by, and named in ``Cleaned.held``.

        :param rest: what the call before has left of its pass; None begins a new pass
        """
        ...
