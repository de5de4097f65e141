"""Operators ask pods, pods hear and answer: late, twice, and under other registrations."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from forge_jobs.model.ids import new_job_id
from forge_jobs.model.pod_requests import ANSWERED_WITHIN, PodVerb
from tests.conformance.model.program import Program, index

verb_of_pods = st.sampled_from(PodVerb)


class Requests(Program):
    def __init__(self) -> None:
        super().__init__()
        self._asked: list[str] = []

    @precondition(lambda self: self.leases)
    @rule(which=index, verb=verb_of_pods, times=st.integers(1, 5))
    def ask_a_pod(self, which: int, verb: PodVerb, times: int) -> None:
        lease = self.pick(self.leases, which)
        for _ in range(times):
            self._asked.append(new_job_id())
            self.do("procs.ask_pod", lease.host_id, verb, request_id=self._asked[-1])
        self.do("procs.pod_requests", lease.host_id)

    @precondition(lambda self: self._asked)
    @rule(which=index, request=index, verb=verb_of_pods)
    def ask_again(self, which: int, request: int, verb: PodVerb) -> None:
        lease = self.pick(self.leases, which)
        asked = self.pick(self._asked, request)
        self.do("procs.ask_pod", lease.host_id, verb, request_id=asked)

    @precondition(lambda self: self._asked)
    @rule(which=index)
    def hear(self, which: int) -> None:
        self.do("procs.hear_requests", self.pick(self.leases, which))

    @precondition(lambda self: self._asked)
    @rule(which=index, request=index, done=st.booleans())
    def answer(self, which: int, request: int, done: bool) -> None:
        lease, asked = self.pick(self.leases, which), self.pick(self._asked, request)
        self.do("procs.answer_request", lease, asked, f"told by {which}", done=done)
        self.do("procs.pod_request", asked)

    @precondition(lambda self: self._asked)
    @rule(which=index)
    def time_for_an_answer_passes(self, which: int) -> None:
        self.clock.advance(ANSWERED_WITHIN)
        self.do("procs.hear_requests", self.pick(self.leases, which))
        self.do("procs.pod_requests", self.pick(self.leases, which).host_id)
