"""Handovers of ended parents reach their children, late, twice and in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from forge_jobs.model.transitions import Delivery, Handover
from tests.conformance.model.program import Program, few

action = st.sampled_from(["settle", "settle", "cancel", "hold", "dead", "cancelled"])


class Children(Program):
    def read_news(self) -> list[Handover]:
        read: list[Handover] = self.do("jobs.handovers", 1_000)
        told = {(each.child_id, each.parent_id) for each in read}
        # A program may still deliver a handover that another has read before.
        self.news = [e for e in self.news if (e.child_id, e.parent_id) not in told] + read
        return read

    @rule()
    def read_handovers(self) -> None:
        self.read_news()

    @precondition(lambda self: self.news)
    @rule(which=few, how=action)
    def deliver(self, which: list[int], how: str) -> None:
        self.do("jobs.deliver", [Delivery(self.pick(self.news, number), how) for number in which])

    @rule(how=action)
    def read_and_deliver(self, how: str) -> None:
        news = self.read_news()
        if news:
            self.do("jobs.deliver", [Delivery(each, how) for each in news])
