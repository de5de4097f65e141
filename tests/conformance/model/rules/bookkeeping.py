"""Minutes, measurements and the timeline: written by pods, folded and forgotten with time."""

from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.processes import PodGauges
from forge_jobs.model.series import FlowSample
from tests.conformance.model.program import LEASE, QUEUES, Program, index, queue

_HISTORY = timedelta(days=365 * 5)
_MINUTE = timedelta(minutes=1)
_counts = st.dictionaries(st.integers(0, 3), st.integers(1, 3), min_size=1, max_size=2).map(
    Histogram
)


class Bookkeeping(Program):
    def minute(self) -> datetime:
        return self.clock.now().replace(second=0, microsecond=0)

    @precondition(lambda self: self.leases)
    @rule(which=index, name=queue, processing=_counts, total=_counts, ago=st.integers(0, 2))
    def measure(
        self, which: int, name: str, processing: Histogram, total: Histogram, ago: int
    ) -> None:
        sample = LatencySample(
            queue=name, minute=self.minute() - ago * _MINUTE, processing=processing, total=total
        )
        self.do("jobs.add_latencies", self.pick(self.leases, which).host_id, [sample])
        self.read_metrics(name)

    @rule(
        name=queue,
        which=index,
        about=index,
        died=st.integers(0, 2),
        ago=st.integers(0, 2),
        version=st.sampled_from(("", "1", "2")),
    )
    def fail_alike(
        self, name: str, which: int, about: int, died: int, ago: int, version: str
    ) -> None:
        group = ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc")[which % 3]
        # No two groups with one time: stores agree on the order all the same, see the cursors.
        self.clock.advance(timedelta(microseconds=1))
        at = self.clock.now() - ago * _MINUTE
        sample = FailureSample(
            queue=name,
            group=group,
            kind=f"kind {group}",
            type="ValueError",
            message=f"{group} of …",
            minute=at.replace(second=0, microsecond=0),
            first_at=at,
            last_at=at,
            retried=2 - died,
            dead=died,
            jobs=(self.pick(self.requests, about).id,) if self.requests else (),
            version=version,
        )
        self.do("jobs.add_failures", [sample])
        self.read_failures(name, group)

    def read_failures(self, name: str, group: str) -> None:
        minute = self.minute()
        since, until = minute - 2 * _MINUTE, minute + _MINUTE
        self.do("jobs.error_groups", since, until, limit=100)
        self.do("jobs.error_groups", since, minute, queue=name, step=5 * _MINUTE, limit=100)
        self.do("jobs.error_group", name, group, since, until)

    @rule(
        name=queue,
        which=index,
        delay=_counts,
        total=_counts,
        ended=st.sampled_from(("succeeded", "failed")),
        ago=st.integers(0, 2),
    )
    def flow(
        self, name: str, which: int, delay: Histogram, total: Histogram, ended: str, ago: int
    ) -> None:
        kind, minute = f"kind {which % 2}", self.minute() - ago * _MINUTE
        sample = FlowSample(
            queue=name,
            kind=kind,
            minute=minute,
            counts={ended: 1 + ago},
            delay=delay,
            processing=delay,
            total=total,
        )
        self.do("jobs.add_flows", [sample, sample])
        now = self.minute()
        self.do("jobs.series", now - 2 * _MINUTE, now + _MINUTE, queue=name, kind=kind)

    def read_metrics(self, name: str) -> None:
        now = self.clock.now()
        self.do("jobs.metrics", name, now - _HISTORY, now + LEASE)

    @rule(name=queue, first=st.integers(0, 3), last=st.integers(-1, 1))
    def read_some_minutes(self, name: str, first: int, last: int) -> None:
        minute = self.minute()
        self.do("jobs.metrics", name, minute - first * _MINUTE, minute - last * _MINUTE)

    @rule(name=queue, about=index, limit=st.integers(1, 3))
    def note(self, name: str, about: int, limit: int) -> None:
        """The newest are read back, whatever else is on the timeline."""
        job_id = self.pick(self.requests, about).id if self.requests else ""
        for detail in ("first", "second"):
            self.clock.advance(timedelta(microseconds=1))
            event = TimelineEvent(
                at=self.clock.now(),
                kind=EventKind.STARTED,
                queue=name,
                job_id=job_id,
                detail=detail,
            )
            self.do("jobs.append_events", [event])
        self.do("jobs.events", queue=name, limit=min(limit, 2))
        if job_id:
            self.do("jobs.events", job_id=job_id, limit=1_000)

    @precondition(lambda self: self.live_leases())
    @rule(which=index, running=st.integers(0, 9), ago=st.integers(0, 1))
    def record_gauges(self, which: int, running: int, ago: int) -> None:
        gauges = PodGauges(cpu_percent=1.5, running=running)
        minute = self.minute() - ago * _MINUTE
        self.do("procs.record_gauges", self.pick(self.live_leases(), which), minute, gauges)
        self.read_gauges()

    def read_gauges(self) -> None:
        minute = self.minute()
        for since, until in ((-5, 5), (-1, 0), (0, 1)):
            self.do("procs.gauges", minute + since * _MINUTE, minute + until * _MINUTE)

    @rule(name=queue)
    def a_busy_pod_folds(self, name: str) -> None:
        """Write one minute from two pods, fold the minute, and write once more from one pod."""
        first, last = self.leases[0].host_id, self.leases[-1].host_id
        minute = self.minute()
        sample = LatencySample(
            queue=name, minute=minute, processing=Histogram({1: 2}), total=Histogram({2: 1})
        )
        self.do("jobs.add_latencies", first, [sample])
        self.do("jobs.add_latencies", last, [sample, sample])
        self.clock.advance(3 * _MINUTE)
        for limit in (1, 2, 1_000):
            self.do("jobs.roll_up", limit)
            self.read_metrics(name)
        self.do("jobs.add_latencies", last, [sample])
        self.do("jobs.roll_up", 1_000)
        for each in QUEUES:
            self.read_metrics(each)
