"""Workers claim, beat, start and end jobs, also those they no longer hold."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from forge_jobs.model.ids import HostId, WorkerId
from forge_jobs.model.jobs import Claim, ClaimedJob
from forge_jobs.model.processes import HeldClaim, PodLease
from forge_jobs.model.transitions import Demand, Finalization, Transition
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import LEASE, Program, few, index, queue

ending = st.sampled_from(sorted(ENDINGS))


class Workers(Program):
    def demand(self, limit: int, workers: int, lease: PodLease) -> Demand:
        """Return the demand of a pod for the published kinds."""
        pod = self.world.pods.get(lease.host_id)
        worker_ids = tuple(WorkerId(self.new_id()) for _ in range(workers))
        kinds = frozenset(pod.pod.kinds) if pod else frozenset[str]()
        return Demand(worker_ids=worker_ids, limit=limit, kinds=kinds)

    def take(self, name: str, lease: PodLease, limit: int, workers: int) -> list[Claim]:
        asked = self.demand(limit, workers, lease)
        return self._hold(self.do("jobs.exchange", name, [], asked, lease).claimed)

    def _hold(self, claimed: Any) -> list[Claim]:
        taken: list[ClaimedJob] = list(claimed)
        claims = [each.claim for each in taken]
        assert not set(claims) & set(self.claims), "a token was given twice"
        self.claims += claims
        self.attempts |= {each.claim: each.attempt for each in taken}
        return claims

    def end(self, claims: list[Claim], transition: Transition) -> None:
        self.do("jobs.finalize", [Finalization(each, transition) for each in claims])

    def beat(self, lease: PodLease, claims: list[Claim], *, running: bool = True) -> None:
        worker = "worker" if running else ""
        held = [HeldClaim(each, worker) for each in dict.fromkeys(claims)]
        self.do("jobs.heartbeat", lease, held, LEASE)

    @rule(name=queue, which=index, limit=st.integers(1, 4), workers=st.integers(0, 4))
    def claim(self, name: str, which: int, limit: int, workers: int) -> None:
        self.take(name, self.pick(self.leases, which), limit, workers)

    @precondition(lambda self: self.live_leases())
    @rule(name=queue, which=index)
    def claim_of_a_live_pod(self, name: str, which: int) -> None:
        self.take(name, self.pick(self.live_leases(), which), 2, 2)

    @rule(name=queue, which=index)
    def claim_reply_lost(self, name: str, which: int) -> None:
        """Lose the reply of a claim: a beat finds these claims, and they go back."""
        lease = self.pick(self.leases, which)
        asked = self.demand(2, 2, lease)
        self.do("jobs.exchange", name, [], asked, lease)
        known = [each for each in self.claims if each.host_id == lease.host_id]
        held = [HeldClaim(each, "worker") for each in known]
        beat = self.do("jobs.heartbeat", lease, held, LEASE)
        if beat.unknown:
            self.do("jobs.release", list(beat.unknown))

    @precondition(lambda self: self.claims)
    @rule(which=few, how=st.lists(ending, min_size=1, max_size=4), times=st.integers(1, 2))
    def finalize(self, which: list[int], how: list[str], times: int) -> None:
        """Finalize a batch of good, lost and repeated items with various ends, once or twice."""
        items = [
            Finalization(self.pick(self.claims, number), ENDINGS[how[place % len(how)]])
            for place, number in enumerate(which)
        ]
        for _ in range(times):
            self.do("jobs.finalize", items)

    @precondition(lambda self: self.world.claimed())
    @rule(which=few, how=ending)
    def finalize_what_is_held(self, which: list[int], how: str) -> None:
        current = [job.claim for job in self.world.claimed()]
        self.end([self.pick(current, number) for number in which], ENDINGS[how])

    @precondition(lambda self: self.claims)
    @rule(name=queue, which=few, how=ending, pod=index, limit=st.integers(0, 3))
    def exchange(self, name: str, which: list[int], how: str, pod: int, limit: int) -> None:
        lease = self.pick(self.leases, pod)
        items = [Finalization(self.pick(self.claims, n), ENDINGS[how]) for n in which]
        answer = self.do("jobs.exchange", name, items, self.demand(limit, limit, lease), lease)
        self._hold(answer.claimed)

    @precondition(lambda self: self.claims)
    @rule(which=few)
    def release(self, which: list[int]) -> None:
        self.do("jobs.release", [self.pick(self.claims, number) for number in which])

    @precondition(lambda self: self.claims)
    @rule(which=few)
    def record_start(self, which: list[int]) -> None:
        self.do("jobs.record_start", [self.pick(self.claims, number) for number in which])

    @precondition(lambda self: self.claims)
    @rule(which=index)
    def act_under_a_wrong_name(self, which: int) -> None:
        """Act with the right token and a wrong queue or pod, or with an unknown token."""
        claim = self.pick(self.claims, which)
        wrong = [
            replace(claim, queue="other"),
            replace(claim, token=0),
            replace(claim, host_id=HostId("another")),
        ]
        self.end(wrong, ENDINGS["done"])
        self.do("jobs.release", wrong)
        self.do("jobs.record_start", wrong)

    @rule(
        pod=index,
        which=st.lists(index, max_size=5),
        everything=st.booleans(),
        running=st.booleans(),
    )
    def heartbeat(self, pod: int, which: list[int], everything: bool, running: bool) -> None:
        """Claims of the pod's own, lost ones and those of others among them."""
        lease = self.pick(self.leases, pod)
        chosen = [self.pick(self.claims, number) for number in which if self.claims]
        if everything:
            mine = self.world.claimed(lease.host_id)
            chosen += [job.claim for job in mine]
        self.beat(lease, chosen, running=running)
