"""Whole lives of jobs, with repeats and late calls: claims, ends, keys, families, operators.

As the adversaries' steps, these bring what they need with them, so that a rule which is drawn once
has seen its subject once.
"""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, Claim, JobStatus, NewJob, Unique
from forge_jobs.model.processes import HeldClaim
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.transitions import Finalization
from tests.conformance.model.endings import ENDINGS, REVIVALS
from tests.conformance.model.program import (
    COMMON,
    KINDS,
    LEASE,
    ODD_KIND,
    QUEUES,
    RARE,
    SECOND,
    queue,
)
from tests.conformance.model.rules.adversaries import Adversaries
from tests.conformance.model.rules.operators import verb
from tests.conformance.model.rules.workers import ending

_places = st.lists(st.tuples(st.integers(-3, -2), st.integers(-2, 0)), min_size=4, max_size=6)
_TAGS: tuple[tuple[str, ...], ...] = (("a",), ("b", "ab"), ('a"b', "é"), ("b",), ('x"a',), ())


class Lives(Adversaries):
    @rule(name=queue, places=_places, limits=st.lists(st.integers(1, 3), min_size=2, max_size=3))
    def order(self, name: str, places: list[tuple[int, int]], limits: list[int]) -> None:
        """Priority, then due time, then id, whatever order they came in."""
        now = self.clock.now()
        self.put_in(
            [
                self.new_request(name, priority=priority, run_at=now + due * SECOND)
                for priority, due in places
            ]
        )
        lease = self.new_pod()
        for limit in limits:
            self.take(name, lease, limit, limit)

    @rule(name=queue, hows=st.lists(ending, min_size=2, max_size=4), ahead=st.booleans())
    def life(self, name: str, hows: list[str], ahead: bool) -> None:
        """Claim and end one job again and again. Each end is sent twice, once late."""
        [job] = self._plain(name, 1)
        past: list[Claim] = []
        for how in hows:
            lease = self.new_pod()
            claims = self.take(name, lease, 1, 0 if ahead else 1)
            self.do("procs.workers", lease.host_id)
            if past:
                self.end(past[-1:], ENDINGS["dead"])
            self.clock.advance(SECOND)
            self.beat(lease, claims)
            self.clock.advance(SECOND)
            self.beat(lease, claims, running=False)
            for _ in range(2):
                self.end(claims, ENDINGS[how])
                self.look_at_jobs()
            self.do("jobs.release", claims)
            past += claims
            self.do("config.clear_cooldown", name)
            self.clock.advance(2 * SECOND)
        self.operate("requeue", job.id)

    def _plain(self, name: str, count: int, **fields: Any) -> list[NewJob]:
        requests = [self.new_request(name, priority=-3, **fields) for _ in range(count)]
        self.put_in(requests)
        self.open(name)
        return requests

    @rule(name=queue, workers=st.integers(0, 1), asked=st.booleans())
    def hand_back(self, name: str, workers: int, asked: bool) -> None:
        """Expect that a released job keeps the place, and has a new token the next time."""
        self._plain(name, 2)
        lease = self.new_pod()
        claims = self.take(name, lease, 2, workers)
        if asked:
            self.operate("cancel", *(each.job_id for each in claims[:1]))
        self.clock.advance(SECOND)
        for _ in range(2):
            self.do("jobs.release", claims)
            self.look_at_jobs()
        again = self.take(name, lease, 2, 2)
        self.end(claims, ENDINGS["done"])
        self.do("jobs.record_start", again)
        self.clock.advance(SECOND)
        self.beat(lease, again)
        self.end(again, ENDINGS["done"])

    @rule(name=queue, how=ending, others=ending, started=st.booleans())
    def asked_to_cancel(self, name: str, how: str, others: str, started: bool) -> None:
        """End a job after the wish to cancel, in a batch with a job without such a wish."""
        self._plain(name, 3)
        lease = self.new_pod()
        claims = self.take(name, lease, 3, 3)
        if started:
            self.do("jobs.record_start", claims)
        asked = claims[:2]
        self.operate("cancel", *(each.job_id for each in asked))
        self.beat(lease, claims)
        items = [
            Finalization(claim, ENDINGS[others if place == 2 else how])
            for place, claim in enumerate(claims)
        ]
        self.do("jobs.finalize", items)
        self.do("jobs.finalize", items)
        self.do("config.queues")
        self.operate("requeue", *(each.job_id for each in claims))

    @rule(name=queue, how=st.sampled_from(sorted(REVIVALS)))
    def revival(self, name: str, how: str) -> None:
        """Revive a job, and expect that the late end of the former owner is refused."""
        self._plain(name, 2)
        claims = self.take(name, self.new_pod(), 2, 1)
        self.operate("cancel", *(each.job_id for each in claims[:1]))
        self.clock.advance(LEASE)
        self.look_for_stale()
        for _ in range(2):
            self.bring_back(REVIVALS[how])
        self.end(claims, ENDINGS["done"])
        self.do("jobs.release", claims)
        self.take(name, self.new_pod(), 2, 0)

    @rule(
        name=queue, extra=st.integers(0, 2), how=st.sampled_from(["done", "done without a result"])
    )
    def successes_for_work(self, name: str, extra: int, how: str) -> None:
        """Ends and claims in one call: whole, repeated, late, and of a job that has children."""
        self._plain(name, 2, result_ttl=2 * SECOND if extra else None)
        lease = self.new_pod()
        claims = self.take(name, lease, 2, 2)
        parent = claims[0].job_id if claims else None
        waiting = self._plain(name, 3 + extra)
        if parent is not None and extra:
            self.put_in([self.new_request("r", after=(After(parent),))])
        items = [Finalization(each, ENDINGS[how]) for each in claims]
        for ends in (items[:1], items, items):
            asked = self.demand(1 + extra, 1, lease)
            answer = self.do("jobs.exchange", name, ends, asked, lease)
            self._hold(answer.claimed)
            self.look_at_jobs()
        self.read_news()
        self.operate("cancel", waiting[-1].id)

    @rule(name=queue, how=ending)
    def key_of_a_life(self, name: str, how: str) -> None:
        """Expect that a key is held while the job may run, and that the id comes first."""
        [job] = self._plain(name, 1, unique=Unique("once"))
        claims = self.take(name, self.new_pod(), 1, 1)
        self.put_in([self.new_request(name, unique=Unique("once"))])
        self.end(claims, ENDINGS[how])
        self.put_in([self.new_request(name, unique=Unique("once"))])
        self.put_in([job])
        self.operate("requeue", job.id)
        self.put_in([self.new_request(name, unique=Unique("once"))])
        holder = self.world.holder(name, "once")
        if holder is not None:
            self.operate("delete", holder.id)
            self.put_in([job, self.new_request(name, unique=Unique("once"))])

    @rule(name=queue, verb_name=verb, limit=st.integers(1, 3))
    def one_of_each(self, name: str, verb_name: str, limit: int) -> None:
        """A job in each state, and one verb for them all."""
        lease = self.new_pod()
        for how in ("done", "dead", "failed", "snoozed", "cancel", "run"):
            [job] = self._plain(name, 1, metadata='{"of": "each"}')
            claims = self.take(name, lease, 1, 1)
            if how == "cancel":
                self.operate("cancel", job.id)
            if how != "run":
                self.end(claims, ENDINGS["failed" if how == "cancel" else how])
        [parent] = self._plain(name, 1)
        child = self.new_request(name, after=(After(parent.id, "hold"),))
        self.put_in([child, self.new_request(name, delay=5 * SECOND)])
        self._page("jobs.list", JobFilter(queues=(name,)), limit)
        jobs = self.world.of_queue(name)
        # Whether a claim has put a job of an unknown kind on hold, out of the line, is left open.
        for each in () if any(each.may_be_held for each in jobs) else jobs:
            self.do("jobs.place", name, each.id)
        self._page(f"jobs.{verb_name}", JobFilter(queues=(name,)), limit)
        self.look_at_jobs(everything=True)
        self._page("jobs.list", JobFilter(statuses=(JobStatus.PENDING, JobStatus.DONE)), limit)
        self.take(name, lease, 4, 4)

    @rule(act=st.sampled_from(["list", "cancel", "delete"]), limit=st.integers(1, 3))
    def tags(self, act: str, limit: int) -> None:
        """Expect that tags are whole words, also with quotes, and that all queues are visited."""
        self.put_in(
            [
                self.new_request(QUEUES[place % 2], tags=tags, kind=KINDS[place % 2])
                for place, tags in enumerate(_TAGS)
            ]
        )
        for tag in ("a", "b", 'a"b', "é"):
            self._page("jobs.list", JobFilter(tag=tag), limit)
        self._page("jobs.list", JobFilter(queues=QUEUES), limit)
        self._page("jobs.list", JobFilter(queues=QUEUES, kinds=(RARE,)), limit)
        self._page(f"jobs.{act}", JobFilter(tag="b", queues=QUEUES), limit)

    @rule(name=queue, count=st.sampled_from([26, 51, 300]))
    def many(self, name: str, count: int) -> None:
        """More in one call than a store may write at once."""
        requests = self._plain(name, count, tags=("many",))
        self.do("jobs.counts")
        self.take(name, self.new_pod(), 2, 2)
        self.look_at_jobs(everything=True)
        self.put_in(requests[:1])
        self._page("jobs.delete", JobFilter(tag="many"), 100)

    @rule(
        name=queue,
        how=st.sampled_from(["done", "dead"]),
        policy=st.sampled_from(["cancel", "continue", "hold"]),
        act=st.sampled_from(["settle", "cancel", "hold"]),
    )
    def child(self, name: str, how: str, policy: Any, act: Any) -> None:
        """End, requeue and delete a parent. The child hears of each end once."""
        lease = self.new_pod()
        [parent] = self._plain(name, 1)
        child = self.new_request("r", after=(After(parent.id, policy),))
        self.put_in([child])
        self.end(self.take(name, lease, 1, 1), ENDINGS[how])
        late = self.new_request("q", after=(After(parent.id, policy),))
        self.put_in([late])
        self.read_and_deliver(act)
        self.look_at_jobs()
        self.operate("requeue", child.id, parent.id)
        self.read_news()
        self.operate("release_held", child.id, late.id)
        self.end(self.take(name, lease, 1, 1), ENDINGS["dead"])
        self.operate("cancel", late.id)
        self.operate("delete", parent.id)
        self.read_news()
        self.operate("requeue", late.id, child.id)
        self.read_and_deliver("settle")

    @rule(name=queue, count=st.integers(1, 3))
    def strangers(self, name: str, count: int) -> None:
        """Expect that unknown kinds are put aside, out of the way of all later claims."""
        self._plain(name, count, kind=ODD_KIND)
        self._plain(name, 1)
        lease = self.new_pod()
        self.take(name, lease, 100, 2)
        self.look_at_jobs()
        self.do("procs.due_kinds", list(QUEUES))
        self.do("jobs.counts")
        self.new_pod(kinds=(RARE,))
        self.take(name, lease, 1, 1)
        self.clock.advance(SECOND)
        self.new_pod(kinds=(COMMON, ODD_KIND))
        self.look_at_jobs(everything=True)
        self.take(name, lease, 1, 1)
        self.do("procs.due_kinds", list(QUEUES))

    @rule(name=queue, epochs=st.booleans())
    def names_of_others(self, name: str, epochs: bool) -> None:
        """Neither a former self nor a neighbour keeps a pod's lease, claims or slots."""
        self._plain(name, 2)
        former = self.new_pod()
        self.share_out()
        claims = self.take(name, former, 1, 1)
        other = self.beat_of(former) if epochs else self.new_pod()
        self.share_out()
        self.clock.advance(SECOND)
        held = [HeldClaim(each, "other") for each in claims]
        self.do("jobs.heartbeat", other, held, LEASE)
        self.look_at_jobs()
        self.do("procs.lower_grants", former, {name: 0})
        self.do("procs.set_draining", former)
        self.take(name, former, 1, 1)
        self.clock.advance(LEASE - SECOND)
        self.do("jobs.heartbeat", former, held, LEASE)
        self.do("jobs.heartbeat", other, held, LEASE)
        self.do("procs.drop_dead_pods", timedelta(0), 1_000)
        self.do("procs.unregister", former)
        self.plans.clear()
        self.do("procs.pods")

    @rule(name=queue, most=st.integers(1, 4))
    def shares(self, name: str, most: int) -> None:
        """Plans that are old, too high or too low, and a maximum that moves under them."""
        self.do("config.set_queue", name, QueueChange(max_workers=4))
        lease, _ = self.new_pod(), self.new_pod()
        self.plan(2, 1)
        old = self.plans
        self.do("procs.allocate", old)
        self.do("procs.allocate", old)
        self.plan(1, 0)
        self.do("config.set_queue", name, QueueChange(max_workers=most))
        self.do("procs.allocate", self.plans)
        for rise in (0, 2, -1):
            self.plan(most, rise)
            self.do("procs.allocate", self.plans)
        self.do("procs.lower_grants", lease, {name: 3})
        self.plan(1, 0)
        self.do("procs.lower_grants", lease, {name: 0})
        self.do("procs.allocate", self.plans)
        self.plans.clear()
