"""Pods come, go and fall silent, and time passes."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.model.transitions import Demand
from tests.conformance.model.program import COMMON, KINDS, LEASE, QUEUES, SECOND, Program, index

_TICKS = (
    timedelta(microseconds=1),
    SECOND,
    5 * SECOND,
    LEASE - timedelta(microseconds=1),
    LEASE,
    timedelta(seconds=61),
    timedelta(days=1),
    timedelta(days=31),
)


class Pods(Program):
    @initialize()
    def two_pods(self) -> None:
        for _ in range(2):
            self.new_pod()

    def new_pod(self, kinds: tuple[str, ...] = (COMMON,)) -> PodLease:
        return self._admit(HostId(self.new_id()), QUEUES, kinds)

    def _admit(self, host_id: HostId, queues: tuple[str, ...], kinds: tuple[str, ...]) -> PodLease:
        pod = Pod(
            host_id=host_id, label="", queues=queues, kinds=kinds, version="1", process_id=4711
        )
        lease: PodLease = self.do("procs.register", pod, LEASE)
        self.leases.append(lease)
        return lease

    def beat_of(self, lease: PodLease, kinds: tuple[str, ...] = (COMMON,)) -> PodLease:
        """Boot the pod again under the old name."""
        return self._admit(lease.host_id, QUEUES, kinds)

    @rule(
        which=st.none() | index,
        queues=st.sampled_from([QUEUES, QUEUES[:1]]),
        kinds=st.sampled_from([(COMMON,), KINDS]),
    )
    def register(self, which: int | None, queues: tuple[str, ...], kinds: tuple[str, ...]) -> None:
        known = None if which is None else self.pick(self.leases, which).host_id
        self._admit(known or HostId(self.new_id()), queues, kinds)

    @rule(which=index)
    def unregister(self, which: int) -> None:
        self.do("procs.unregister", self.pick(self.leases, which))
        # The contract leaves open whether the version of an allocation moves with an outside pod.
        self.plans.clear()

    @rule(dead_for=st.sampled_from([timedelta(0), LEASE]))
    def drop_dead_pods(self, dead_for: timedelta) -> None:
        self.do("procs.drop_dead_pods", dead_for, 1_000)
        self.plans.clear()

    @rule()
    def look_at_pods(self) -> None:
        self.do("procs.pods")
        self.do("procs.workers")

    @rule(step=st.sampled_from(_TICKS))
    def tick(self, step: timedelta) -> None:
        self.clock.advance(step)

    @precondition(lambda self: self.leases)
    @rule()
    def reconnect(self) -> None:
        """Start every process again. The stores stay."""
        self.reconnect_all()

    @rule()
    def pod_name_used_again(self) -> None:
        """The beats of a pod's former self keep neither lease alive."""
        former = self.new_pod()
        lease = self.beat_of(former)
        self.clock.advance(LEASE - SECOND)
        self.do("jobs.heartbeat", former, [], LEASE)
        self.clock.advance(SECOND)
        for each in (former, lease):
            asked = Demand(worker_ids=("w",), limit=1, kinds=frozenset({COMMON}))
            self.do("jobs.exchange", QUEUES[0], [], asked, each)
        self.do("jobs.heartbeat", lease, [], LEASE)
