"""Schedules are declared, edited and fired. Reading and firing are two steps."""

from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from forge_jobs.clock import to_us
from forge_jobs.model.ids import JobId, occurrence_job_id
from forge_jobs.model.jobs import Line, NewJob, Unique
from forge_jobs.model.schedules import Firing, Schedule, ScheduleSpec
from tests.conformance.model.participants import Raised
from tests.conformance.model.program import COMMON, Program, few, index, queue

_EVERY = timedelta(seconds=7)
name_of = st.sampled_from(["nightly", "hourly"])


class Schedules(Program):
    def __init__(self) -> None:
        super().__init__()
        self._occurrences: set[JobId] = set()

    def _spec(self, name: str, queue_name: str, overlap: bool) -> ScheduleSpec:
        return ScheduleSpec(
            name=name,
            queue=queue_name,
            kind=COMMON,
            expression="@every 7s",
            overlap="allow" if overlap else "skip",
            sequence=Line("m") if name == "hourly" else None,
        )

    @rule(name=name_of, to=queue, overlap=st.booleans())
    def deploy_schedule(self, name: str, to: str, overlap: bool) -> None:
        spec = self._spec(name, to, overlap)
        known = self.world.schedules.get(name)
        if known is None or not known.deleted:
            self.do("cron.ensure_schedule", spec, self.clock.now() + _EVERY)
        self.do("cron.get_schedule", name)

    @rule(name=name_of, to=queue, overlap=st.booleans())
    def edit_schedule(self, name: str, to: str, overlap: bool) -> None:
        self.do("cron.put_schedule", self._spec(name, to, overlap), self.clock.now() + _EVERY)

    @rule(name=name_of, paused=st.booleans())
    def pause_schedule(self, name: str, paused: bool) -> None:
        self.do("cron.pause_schedule", name, paused, self.clock.now() + _EVERY)

    @rule(name=name_of)
    def delete_schedule(self, name: str) -> None:
        self.do("cron.delete_schedule", name)

    @rule(limit=st.integers(1, 3))
    def read_due_schedules(self, limit: int) -> None:
        self.read_due(limit)

    def read_due(self, limit: int = 10) -> list[Schedule]:
        due = self.do("cron.due_schedules", limit)
        self.read_schedules = list(due.schedules)
        return self.read_schedules

    @precondition(lambda self: self.read_schedules)
    @rule(which=index, times=st.integers(1, 2), broken=st.sampled_from(["", "", "", "broken"]))
    def fire(self, which: int, times: int, broken: str) -> None:
        """Perhaps long after the reading, perhaps twice."""
        firing = self.firing_of(self.pick(self.read_schedules, which), error=broken)
        for _ in range(times):
            self.fire_all([firing])

    @precondition(lambda self: self.read_schedules)
    @rule(which=few, refused=st.booleans())
    def fire_many(self, which: list[int], refused: bool) -> None:
        """Fire in one call, some perhaps twice, and one perhaps with a job that is refused."""
        firings = [self.firing_of(self.pick(self.read_schedules, each)) for each in which]
        if refused and self.world.jobs:
            taken = self.world.jobs[self.pick(sorted(self.world.jobs), which[0])].request
            other = replace(taken, kind="tests.of_no_other_job", fingerprint="", after=())
            firings[-1] = replace(firings[-1], jobs=(*firings[-1].jobs, other))
        self.fire_all(firings)

    def firing_of(self, read: Schedule, *, error: str = "") -> Firing:
        assert read.next_at is not None
        next_at = read.next_at
        while next_at <= self.clock.now():
            # One job stands for all the occurrences that no pod was there to fire.
            next_at += _EVERY * (1 + (self.clock.now() - next_at) // _EVERY)
        jobs = () if error else (self._job_of(read, read.next_at),)
        return Firing(
            name=read.spec.name,
            version=read.version,
            jobs=jobs,
            next_at=next_at,
            fired_at=read.next_at if jobs else None,
            error=error,
            skipped=1,
        )

    def _job_of(self, read: Schedule, occurrence: datetime) -> NewJob:
        spec = read.spec
        return NewJob(
            id=occurrence_job_id(spec.name, to_us(occurrence)),
            queue=spec.queue,
            kind=spec.kind,
            payload=spec.payload,
            schedule=spec.name,
            unique=Unique(f"schedule {spec.name}") if spec.overlap == "skip" else None,
            sequence=spec.sequence,
        )

    def fire_all(self, firings: list[Firing]) -> None:
        answers = self.do("cron.fire", firings)
        if isinstance(answers, Raised):
            return
        for firing, fired in zip(firings, answers, strict=True):
            if fired:
                for job in firing.jobs:
                    assert job.id not in self._occurrences, "an occurrence fired twice"
                    self._occurrences.add(job.id)
                    self.requests.append(job)

    @rule(name=name_of, key=st.sampled_from([None, "a"]))
    def trigger(self, name: str, key: str | None) -> None:
        job = NewJob(
            id=JobId(self.new_id()),
            queue="q",
            kind=COMMON,
            payload="{}",
            unique=Unique(key) if key else None,
        )
        self.do("cron.trigger", name, job)
        self.requests.append(job)

    @rule()
    def list_schedules(self) -> None:
        self.do("cron.schedules", with_deleted=True)
