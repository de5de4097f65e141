"""The machine: all rules, the invariants after each step, and the end of a program.

Hypothesis draws for each program which rules are allowed at all, so some are about little but
leases, others about little but keys.
"""

from typing import Any

from hypothesis.stateful import invariant

from forge_jobs.clock import to_us
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import ACTIVE, JobStatus
from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.transitions import Delivery
from tests.conformance.model.endings import ENDINGS, REVIVALS
from tests.conformance.model.program import (
    KINDS,
    LEADER_LEASE,
    LEASE,
    ODD_KIND,
    QUEUES,
    SECOND,
    SHARED,
)
from tests.conformance.model.reference.groups import KIND as GROUP_KIND
from tests.conformance.model.rules.callers import Callers
from tests.conformance.model.rules.deletions import Deletions
from tests.conformance.model.rules.groups import Groups
from tests.conformance.model.rules.letters import Letters
from tests.conformance.model.rules.limits import Limits
from tests.conformance.model.rules.requests import Requests
from tests.conformance.model.rules.shares import Shares
from tests.conformance.model.rules.strikes import Strikes
from tests.conformance.model.rules.telling import Telling

_ROUNDS = 60
_READS: tuple[tuple[Any, ...], ...] = (
    ("jobs.counts",),
    ("config.queues",),
    ("procs.pods",),
    ("jobs.metrics", QUEUES[0]),
    ("procs.allocations",),
    ("procs.workers",),
    ("jobs.list", JobFilter()),
    ("config.rate_limits",),
    ("cron.schedules",),
    ("jobs.metrics", QUEUES[1]),
    ("procs.due_kinds", QUEUES),
    ("procs.live_pods",),
    ("cron.leader",),
)


class StoreMachine(Groups, Deletions, Letters, Telling, Callers, Requests, Limits, Shares, Strikes):
    """Subclasses name the backends and lend an event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._done: set[JobId] = set()
        self._tokens: dict[JobId, int] = {}
        self._looks = 0

    # -- what must hold after every step

    @invariant()
    def stores_show_what_the_model_says(self) -> None:
        self.look_at_jobs()
        self._look_at_one_thing_more()

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        assert len(self.world.jobs) == self.world.accepted - self.world.removed

    @invariant()
    def done_is_for_good_and_tokens_only_grow(self) -> None:
        jobs = self.world.jobs
        gone = (self._done | self._tokens.keys()) - jobs.keys()
        self._done -= gone
        assert all(jobs[job_id].status is JobStatus.DONE for job_id in self._done)
        for job in jobs.values():
            assert job.token >= self._tokens.get(job.id, 0)
            assert 0 <= job.attempt <= job.token - to_us(job.enqueued_at)
        self._done |= {job.id for job in jobs.values() if job.status is JobStatus.DONE}
        self._tokens = {job.id: job.token for job in jobs.values()}

    def _look_at_one_thing_more(self) -> None:
        """Look at another thing after each step: a difference shows before an overwrite."""
        looks = (*_READS, *(("jobs.events", name) for name in QUEUES))
        self._looks += 1
        read, *about = looks[self._looks % len(looks)]
        if read == "jobs.events":
            self.do(read, queue=about[0], limit=1_000)
        elif read == "jobs.metrics":
            self.read_metrics(*about)
        else:
            self.do(read, *about)

    # -- the end of a program

    def finish(self) -> None:
        self.stores_are_in_order()
        self._compare_everything()
        self._everybody_is_well()
        self._all_work_ends()
        self._slots_are_in_full_use()
        self.look_at_jobs(everything=True)
        super().finish()
        self.do("jobs.counts")

    def _compare_everything(self) -> None:
        self.look_at_jobs(everything=True)
        self.do("jobs.list", JobFilter(), limit=1_000)
        for read in ("jobs.counts", "config.queues", "config.rate_limits", "procs.pods"):
            self.do(read)
        for read in ("procs.workers", "procs.allocations", "cron.schedules", "cron.leader"):
            self.do(read)
        self.do("jobs.handovers", 1_000)
        self.do("jobs.letters", 1_000)
        now = self.clock.now()
        for name in sorted(self.world.queues):
            self.do("jobs.metrics", name, now - 60 * SECOND * 60 * 24 * 365 * 5, now + LEASE)
            self.do("jobs.events", queue=name, limit=1_000)

    def _everybody_is_well(self) -> None:
        """Leave one pod that knows everything, no pause, and no other live pod."""
        self.clock.advance(LEASE)
        for name in (*QUEUES, SHARED):
            self.do("config.set_paused", name, False) if name in self.world.queues else None
        kinds = (*KINDS, ODD_KIND, "tests.other", DEAD_LETTER_KIND, GROUP_KIND)
        queues = (*QUEUES, SHARED) if SHARED in self.world.queues else QUEUES
        self._last = self._admit(HostId(self.new_id()), queues, kinds)

    def _all_work_ends(self) -> None:
        """Run all jobs to their ends: none fails any more, so each needs one further claim."""
        for _ in range(_ROUNDS):
            self.look_for_stale()
            self.bring_back(REVIVALS["again"])
            self.do("jobs.expire", 1_000)
            self.do("jobs.release_struck", [], 1_000)
            news = self.read_news()
            self.do("jobs.deliver", [Delivery(each, "settle") for each in news])
            self.relay_all()
            for name in QUEUES:
                self.end(self.take(name, self._last, 100, 100), ENDINGS["done"])
            if SHARED in self.world.queues:
                self.end(self.take_of_keys(self._last, 100), ENDINGS["done"])
            if not self._unfinished():
                return
            self.clock.advance(5 * SECOND)
            self.beat(self._last, [])
        raise AssertionError(f"jobs that never end: {self._unfinished()}")

    def _unfinished(self) -> list[JobId]:
        """Jobs that wait for an operator because of an edge on hold do not count."""
        jobs = self.world.jobs
        stuck = {job.id for job in jobs.values() if job.view().held_by}
        # Jobs that wait for those do not end either, nor children of a parent deleted before a
        # handover.
        while more := {
            job.id
            for job in jobs.values()
            if job.id not in stuck and any(parent in stuck for parent in job.edges)
        }:
            stuck |= more
        return [job.id for job in jobs.values() if job.status in ACTIVE and job.id not in stuck]

    def _slots_are_in_full_use(self) -> None:
        """Expect that one pod alone leads, and gets every slot within two rounds."""
        self.clock.advance(LEADER_LEASE)
        self.beat(self._last, [])
        assert self.lead_as(self._last.host_id).host_id == self._last.host_id
        for _ in range(2):
            self.share_out()
        for each in self.read_allocations():
            mine = each.pods.get(self._last.host_id)
            assert mine is None or mine.grant == each.max_workers, f"idle slots in {each.queue}"
        for firing in [self.firing_of(each) for each in self.read_due()]:
            self.fire_all([firing])
        assert not self.read_due(), "a schedule that is due was not fired"
