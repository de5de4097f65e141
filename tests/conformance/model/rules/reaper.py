"""The reaper, in two steps: a read of stale claims, and later a write."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from forge_jobs.model.transitions import Revival, StaleClaim, Transition
from tests.conformance.model.endings import REVIVALS
from tests.conformance.model.program import LEASE, Program


class Reaper(Program):
    @rule()
    def scan(self) -> None:
        self.look_for_stale()

    def look_for_stale(self) -> list[StaleClaim]:
        self.scanned = self.do("jobs.stale_claims", LEASE, 1_000)
        return self.scanned

    @precondition(lambda self: self.scanned)
    @rule(how=st.sampled_from(sorted(REVIVALS)), stale_after=st.sampled_from([LEASE, 2 * LEASE]))
    def revive(self, how: str, stale_after: timedelta) -> None:
        self.bring_back(REVIVALS[how], stale_after)

    def bring_back(self, transition: Transition, stale_after: timedelta = LEASE) -> None:
        items = [Revival(each.claim, transition) for each in self.scanned]
        self.do("jobs.revive", items, stale_after)
