"""Composite steps that make rare orders common.

Single steps would meet them too, but so seldom that a run of minutes misses them.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.jobs import After, Unique
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.transitions import Delivery
from forge_jobs.policy.slots.plan import plan_allocations
from tests.conformance.model.endings import ENDINGS, REVIVALS
from tests.conformance.model.program import (
    COMMON,
    LEADER_LEASE,
    LEASE,
    ODD_KIND,
    QUEUES,
    Program,
    few,
    queue,
)
from tests.conformance.model.rules.children import Children, action
from tests.conformance.model.rules.coordination import Coordination
from tests.conformance.model.rules.operators import Operators
from tests.conformance.model.rules.pods import Pods
from tests.conformance.model.rules.producers import Producers
from tests.conformance.model.rules.reaper import Reaper
from tests.conformance.model.rules.schedules import Schedules
from tests.conformance.model.rules.workers import Workers, ending

AGAIN = REVIVALS["again"]
_a_rule = st.sampled_from(["note", "note", "hold", "cancel", "continue"])
_an_end = st.sampled_from(["dead", "done", "cancel", "delete", "none"])
_PARENTS = 3
_rounds = st.lists(
    st.tuples(
        st.lists(_an_end, min_size=_PARENTS, max_size=_PARENTS),
        few,
        st.tuples(action, action),
    ),
    min_size=2,
    max_size=3,
)


class OwnershipAdversaries(Pods, Producers, Workers, Reaper, Operators):
    @rule(name=queue, how=ending)
    def zombie(self, name: str, how: str) -> None:
        """Freeze a pod, let others revive and claim the jobs, then let the pod end them, twice."""
        self.stock(name)
        frozen_pod = self.new_pod()
        frozen = self.take(name, frozen_pod, 2, 2)
        self.clock.advance(LEASE)
        self.look_for_stale()
        self.bring_back(AGAIN)
        self.take(name, self.new_pod(), 2, 2)
        for _ in range(2):
            self.end(frozen, ENDINGS[how])
        self.beat(frozen_pod, frozen)
        self.do("jobs.release", frozen)

    @rule(name=queue, meanwhile=st.sampled_from(["end", "cancel", "beat", "release", "start"]))
    def reap_race(self, name: str, meanwhile: str) -> None:
        """Change stale claims between the reaper's scan and the write."""
        self.stock(name)
        lease = self.new_pod()
        claims = self.take(name, lease, 2, 2)
        self.clock.advance(LEASE)
        self.look_for_stale()
        if meanwhile == "end":
            self.end(claims, ENDINGS["failed at once"])
        elif meanwhile == "cancel":
            self.operate("cancel", *(each.job_id for each in claims))
        elif meanwhile == "beat":
            self.beat(lease, claims)
        else:
            self.do("jobs.record_start" if meanwhile == "start" else "jobs.release", claims)
        self.bring_back(AGAIN)

    @rule(name=queue)
    def late_claim(self, name: str) -> None:
        """Let a reaper sleep after a scan, while claims are revived, claimed and stale again."""
        self.stock(name)
        self.take(name, self.new_pod(), 2, 2)
        self.clock.advance(LEASE)
        old = self.look_for_stale()
        self.bring_back(AGAIN)
        self.take(name, self.new_pod(), 2, 2)
        self.clock.advance(LEASE)
        self.scanned = old
        self.bring_back(AGAIN)

    @rule(name=queue, how=ending)
    def cancel_race(self, name: str, how: str) -> None:
        """Jobs are asked to cancel, end all the same, are asked back and claimed again."""
        self.stock(name)
        lease = self.new_pod()
        claims = self.take(name, lease, 2, 2)
        ids = [each.job_id for each in claims]
        self.operate("cancel", *ids)
        self.beat(lease, claims)
        self.end(claims, ENDINGS[how])
        self.operate("requeue", *ids)
        self.beat(lease, self.take(name, lease, 2, 2), running=False)

    @rule(name=queue, ahead=st.integers(1, 4), rounds=st.integers(1, 3))
    def crash_loop(self, name: str, ahead: int, rounds: int) -> None:
        """Let every owner die. Then a pod asks for work to hold ahead."""
        self.stock(name)
        for _ in range(rounds):
            self.take(name, self.new_pod(), 2, 2)
            self.clock.advance(LEASE)
            self.look_for_stale()
            self.bring_back(AGAIN)
        self.take(name, self.new_pod(), ahead, 0)

    @rule(name=queue, how=st.sampled_from(["dead", "failed at once", "done"]))
    def unique_storm(self, name: str, how: str) -> None:
        """Free one key, take that key again, and ask for the key by a requeue."""

        def keyed() -> None:
            self.put_in([self.new_request(name, unique=Unique("a")) for _ in range(2)])

        keyed()
        claims = self.take(name, self.new_pod(), 4, 4)
        self.end(claims, ENDINGS[how])
        keyed()
        self.operate("requeue", *(each.job_id for each in claims))
        holder = self.world.holder(name, "a")
        if holder is not None:
            self.operate("cancel", holder.id)
            keyed()
            self.operate("requeue", holder.id)

    @rule(name=queue)
    def kind_that_nobody_knows(self, name: str) -> None:
        """Put such a job aside once. The job comes back with a pod that knows the kind."""
        job = self.new_request(name, kind=ODD_KIND, priority=-1)
        self.put_in([job, self.new_request(name, priority=-1)])
        self.take(name, self.new_pod(), 1, 1)
        self.look_at_jobs()
        knows = self.new_pod(kinds=(COMMON, ODD_KIND))
        self.take(name, knows, 4, 4)
        self.do("procs.unregister", knows)
        self.plans.clear()


class SharingAdversaries(Pods, Producers, Workers, Children, Coordination, Schedules, Operators):
    @rule(order=st.permutations(["dead", "done"]), hows=st.lists(action, min_size=2, max_size=2))
    def family(self, order: list[str], hows: list[str]) -> None:
        """End parents in any order while their handovers are read early, late and twice."""
        parents = [self.new_request(name, priority=-1) for name in QUEUES]
        edges = tuple(After(each.id) for each in parents)
        child = self.new_request("q", after=edges)
        grandchild = self.new_request("r", after=(After(child.id, "continue"),))
        self.put_in([*parents, child, grandchild])
        lease = self.new_pod()
        for name, end, how in zip(QUEUES, order, hows, strict=True):
            self.end(self.take(name, lease, 1, 1), ENDINGS[end])
            news = self.read_news()
            for _ in range(2):
                self.do("jobs.deliver", [Delivery(each, how) for each in news])

    @rule(
        where=st.lists(queue, min_size=_PARENTS, max_size=_PARENTS),
        name=queue,
        rules=st.lists(_a_rule, min_size=_PARENTS, max_size=_PARENTS),
        rounds=_rounds,
    )
    def ends_told_in_one_call(
        self,
        where: list[str],
        name: str,
        rules: list[Any],
        rounds: list[tuple[list[str], list[int], tuple[str, str]]],
    ) -> None:
        """End parents again and again, and tell of several ends in one call, in any order."""
        parents = [self.new_request(each, priority=-9) for each in where]
        ids = [each.id for each in parents]
        child = self.new_request(name, after=tuple(map(After, ids, rules)))
        grandchild = self.new_request("r", after=(After(child.id, "note"), After(ids[0], "note")))
        self.put_in([*parents, child, grandchild])
        for each in sorted({*where}):
            self.open(each)
        lease = self.new_pod()
        for ends, which, hows in rounds:
            for parent, end in zip(parents, ends, strict=True):
                if end in ENDINGS:
                    self.end(self.take(parent.queue, lease, 1, 1), ENDINGS[end])
                elif end != "none":
                    self.operate(end, parent.id)
            if news := self.read_news():
                told = [self.pick(news, number) for number in which]
                pairs = zip(told, hows * 2, strict=False)
                self.do("jobs.deliver", [Delivery(each, how) for each, how in pairs])
            self.look_at_jobs()
            self.operate("requeue", *ids, child.id)

    @rule()
    def leader_freeze(self) -> None:
        """Let a leader sleep past the lease and another lead. Then the first one goes on."""
        old, new = self.new_pod(), self.new_pod()
        standing = self.lead_as(old.host_id)
        if standing.host_id != old.host_id:
            self.do("cron.resign", standing.host_id, standing.term)
            standing = self.lead_as(old.host_id)
        plans = plan_allocations(self.read_allocations())
        due = [self.firing_of(each) for each in self.read_due()]
        self.clock.advance(LEADER_LEASE)
        self.lead_as(new.host_id)
        self.do("procs.allocate", plan_allocations(self.read_allocations()))
        self.fire_all([self.firing_of(each) for each in self.read_due()])
        self.do("procs.allocate", plans)
        self.fire_all(due)
        self.do("cron.resign", old.host_id, standing.term)
        self.do("cron.leader")

    @rule(most=st.integers(0, 4))
    def slot_storm(self, most: int) -> None:
        """Slots are shared out, the maximum falls and rises, a pod dies without giving back."""
        for pods in range(2):
            for name in QUEUES:
                self.do("config.set_queue", name, QueueChange(max_workers=3 + pods))
            self.share_out()
            self.new_pod()
        self.do("config.set_queue", "q", QueueChange(max_workers=most))
        self.share_out()
        for lease in self.live_leases()[:2]:
            self.do("procs.lower_grants", lease, {"q": 1})
        self.share_out()
        lease = self.new_pod()
        self.clock.advance(LEASE)
        self.do("jobs.heartbeat", lease, [], LEASE)
        self.new_pod()
        self.share_out()

    def share_out(self) -> None:
        """Make one round of a coordinator."""
        self.do("procs.allocate", plan_allocations(self.read_allocations()))


class Adversaries(OwnershipAdversaries, SharingAdversaries, Program):
    """All of them."""
