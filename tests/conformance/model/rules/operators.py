"""Operators change jobs and queues, one or many. Time removes jobs past their retention."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec import structs

from forge_jobs.model.edits import content_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import CooldownPolicy, QueueChange, QueueSettings, Retention
from tests.conformance.model.program import (
    COMMON,
    KEPT,
    QUEUES,
    RARE,
    SECOND,
    Program,
    few,
    index,
    queue,
)

verb = st.sampled_from(
    ["cancel", "delete", "requeue", "requeue", "restore", "restore", "run_now", "release_held"]
)
_statuses = st.sampled_from(
    [
        (),
        (JobStatus.PENDING, JobStatus.FAILED),
        (JobStatus.IN_PROGRESS,),
        (JobStatus.DEAD, JobStatus.CANCELLED),
        (JobStatus.DONE,),
        (JobStatus.BLOCKED,),
    ]
)
filters = st.builds(
    JobFilter,
    queues=st.sampled_from([(), (), QUEUES, QUEUES[:1]]),
    kinds=st.sampled_from([(), (), (COMMON,), (RARE,)]),
    statuses=_statuses,
    causes=st.sampled_from([(), (), (Cause.CANCELLED, Cause.EXPIRED), (Cause.FAILED,)]),
    tag=st.sampled_from([None, None, "a", "é", 'a"b', "b"]),
    unique_key=st.sampled_from([None, None, None, "a"]),
)
_CHANGES = (
    QueueChange(max_workers=0),
    QueueChange(max_workers=3),
    QueueChange(max_workers=5),
    QueueChange(cooldown=CooldownPolicy(quiet=3 * SECOND)),
    QueueChange(retention=Retention(done=timedelta(0), dead=timedelta(0))),
    QueueChange(retention=Retention(max_done=1, max_dead=0, max_cancelled=1)),
    QueueChange(retention=Retention()),
    QueueChange(back=frozenset({"max_workers", "retention"})),
)

_DAY = timedelta(days=1)
edits = st.fixed_dictionaries(
    {},
    optional={
        "payload": st.sampled_from(['{"n":1}', '{"n" : 2}']),
        "priority": st.integers(-3, 3),
        "due_at": st.sampled_from([-_DAY, timedelta(0), SECOND, 20 * SECOND]),
        "max_attempts": st.sampled_from([None, 1, 3]),
        "timeout": st.sampled_from([None, SECOND]),
        "expires_at": st.sampled_from([None, SECOND, _DAY]),
        "tags": st.sampled_from([(), ("a",), ("b", 'a"b')]),
        "metadata": st.sampled_from([{}, {"who": "é"}]),
    },
)


class Operators(Program):
    def operate(self, name: str, *ids: JobId) -> None:
        self.do(f"jobs.{name}", JobFilter(ids=ids))

    @precondition(lambda self: self.requests)
    @rule(name=verb, which=few)
    def act_on_some(self, name: str, which: list[int]) -> None:
        self.operate(name, *{self.pick(self.requests, number).id for number in which})

    @precondition(lambda self: self.requests)
    @rule(which=index, changes=edits, seen_late=st.booleans())
    def edit(self, which: int, changes: dict[str, Any], seen_late: bool) -> None:
        """Edit a job as it is, and once more as it was before."""
        job = self.world.jobs.get(self.pick(self.requests, which).id)
        if job is None:
            return
        seen, now = job.view(), self.clock.now()
        before = content_of(seen)
        moments = {
            name: now + value
            for name, value in changes.items()
            if name in ("due_at", "expires_at") and value is not None
        }
        after = structs.replace(before, **(changes | moments))
        for _ in range(2 if seen_late else 1):
            self.do("jobs.edit", job.id, token=seen.token, before=before, after=after)

    @rule(name=verb, which=filters, limit=st.integers(1, 3))
    def act_on_all_that_match(self, name: str, which: JobFilter, limit: int) -> None:
        self._page(f"jobs.{name}", which, limit)

    @rule(which=filters, limit=st.integers(1, 3))
    def read_all_that_match(self, which: JobFilter, limit: int) -> None:
        self._page("jobs.list", which, limit)

    def _page(self, method: str, which: JobFilter, limit: int) -> None:
        cursor: str | None = None
        for _ in range(len(self.requests) + 1):
            answer: Any = self.do(method, which, cursor=cursor, limit=limit)
            cursor = answer.cursor
            if cursor is None:
                return
        raise AssertionError(f"{method} never ends")

    @rule()
    def expire(self) -> None:
        self.do("jobs.expire", 1_000)

    @rule()
    def cleanup(self) -> None:
        self.do("jobs.cleanup", 1_000, kept=KEPT)

    @rule(limit=st.sampled_from([1, 1_000]))
    def roll_up(self, limit: int) -> None:
        self.do("jobs.roll_up", limit)

    @rule()
    def count(self) -> None:
        self.do("jobs.counts")

    @rule(name=queue, paused=st.booleans())
    def pause_or_resume(self, name: str, paused: bool) -> None:
        self.do("config.set_paused", name, paused)

    @rule(name=queue)
    def clear_cooldown(self, name: str) -> None:
        self.do("config.clear_cooldown", name)

    @rule(name=st.sampled_from([*QUEUES, "nobody's"]), change=st.sampled_from(_CHANGES))
    def change_queue(self, name: str, change: QueueChange) -> None:
        self.do("config.set_queue", name, change)

    @rule(name=queue, max_workers=st.integers(0, 4))
    def deploy_queue(self, name: str, max_workers: int) -> None:
        self.do("config.ensure_queue", name, QueueSettings(max_workers=max_workers))
