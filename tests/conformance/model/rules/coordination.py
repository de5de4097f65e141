"""Leaders lead, slots are shared out, budgets are drawn on."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, HeldClaim, Leadership, Slots
from forge_jobs.model.queues import RateAsk, RateLimit
from tests.conformance.model.program import LEADER_LEASE, LEASE, SECOND, Program, index, queue

_LIMITS = (RateLimit(3, 5 * SECOND), RateLimit(2, timedelta(milliseconds=1)), RateLimit(7, SECOND))
_SCOPES = ("gh", "slack")
scope = st.sampled_from(_SCOPES)
_a_rate_ask = st.builds(
    RateAsk,
    scope,
    st.sampled_from(["", "a", "b"]),
    waits=st.booleans(),
    had_turn=st.booleans(),
    ahead=st.sampled_from([timedelta(0), timedelta(0), timedelta(milliseconds=300)]),
)


class Coordination(Program):
    def __init__(self) -> None:
        super().__init__()
        self._taken: list[tuple[str, datetime, int]] = []
        self._granted = Counter[str]()

    # -- the leader

    def lead_as(self, host_id: HostId) -> Leadership:
        standing: Leadership = self.do("cron.lead", host_id, LEADER_LEASE)
        held = (standing.host_id, standing.term)
        newest = max((term for _, term in self.terms), default=0)
        assert standing.term >= newest, "a term went back"
        assert held in self.terms or standing.term > newest, "two leaders of one term"
        if held not in self.terms:
            self.terms.append(held)
        return standing

    @rule(which=index)
    def lead(self, which: int) -> None:
        self.lead_as(self.pick(self.leases, which).host_id)

    @precondition(lambda self: self.terms)
    @rule(which=index)
    def resign(self, which: int) -> None:
        self.do("cron.resign", *self.pick(self.terms, which))

    # -- slots

    def read_allocations(self) -> list[Allocation]:
        read: list[Allocation] = self.do("procs.allocations")
        return read

    def after_call(self) -> None:
        """Grants may exceed a lowered maximum until they are given back, and never grow then."""
        super().after_call()
        granted = Counter[str]()
        for pod in self.world.live_pods():
            for name, slots in pod.slots.items():
                assert slots.grant >= 0
                granted[name] += slots.grant
        for name, total in granted.items():
            most = self.world.queues[name].settings.max_workers
            assert total <= max(most, self._granted[name]), f"more slots than workers in {name}"
        self._granted = granted

    @rule(wanted=st.integers(0, 3), rise=st.integers(-1, 3))
    def plan(self, wanted: int, rise: int) -> None:
        """A coordinator reads, and decides on something, not always something allowed."""
        self.plans = [
            AllocationChange(
                queue=each.queue,
                version=each.version,
                slots={
                    host: Slots(wanted, max(0, slots.grant + rise))
                    for host, slots in each.pods.items()
                },
            )
            for each in self.read_allocations()
        ]

    @precondition(lambda self: self.plans)
    @rule(only=st.none() | index)
    def allocate(self, only: int | None) -> None:
        plans = self.plans if only is None else [self.pick(self.plans, only)]
        self.do("procs.allocate", [replace(each, slots=dict(each.slots)) for each in plans])

    @precondition(lambda self: self.live_leases())
    @rule(which=index, name=queue, most=st.integers(0, 2))
    def lower_grants(self, which: int, name: str, most: int) -> None:
        self.do("procs.lower_grants", self.pick(self.live_leases(), which), {name: most})

    @precondition(lambda self: self.live_leases())
    @rule(which=index, names=st.lists(queue, max_size=3, unique=True))
    def change_queues(self, which: int, names: list[str]) -> None:
        lease = self.pick(self.live_leases(), which)
        pod = self.world.pods[lease.host_id].pod
        self.do("procs.change_queues", lease, replace(pod, queues=tuple(names)), LEASE)
        # "The lease itself is not renewed": until a beat the leases in new queues may last longer.
        held = [HeldClaim(job.claim, "") for job in self.world.claimed(lease.host_id)]
        self.do("jobs.heartbeat", lease, held, LEASE)

    @precondition(lambda self: self.live_leases())
    @rule(which=index)
    def drain(self, which: int) -> None:
        self.do("procs.set_draining", self.pick(self.live_leases(), which))

    @precondition(lambda self: self.live_leases())
    @rule(which=index, resumes=st.booleans())
    def quiet(self, which: int, resumes: bool) -> None:
        lease = self.pick(self.live_leases(), which)
        self.do("procs.set_draining", lease, quiet=True)
        if resumes:
            self.do("procs.end_draining", lease)

    # -- rate limits

    @rule(name=scope, limit=st.sampled_from(_LIMITS))
    def deploy_rate_limit(self, name: str, limit: RateLimit) -> None:
        self.do("config.ensure_rate_limit", name, limit)
        self._forget_taken()

    @rule(name=scope, limit=st.sampled_from(_LIMITS))
    def set_rate_limit(self, name: str, limit: RateLimit) -> None:
        self.do("config.set_rate_limit", name, limit)
        self._forget_taken()

    def _forget_taken(self) -> None:
        """A bucket's promise is about one size."""
        self._taken.clear()

    @rule(name=scope)
    def drain_tokens(self, name: str) -> None:
        self.do("config.drain_tokens", name)

    @rule(
        name=scope,
        count=st.integers(1, 4),
        times=st.integers(1, 3),
        within=st.sampled_from([timedelta(0), timedelta(0), SECOND, 60 * SECOND]),
    )
    def take_tokens(self, name: str, count: int, times: int, within: timedelta) -> None:
        for _ in range(times):
            self.take_tokens_of(name, count, within)

    def take_tokens_of(self, name: str, count: int, within: timedelta = timedelta(0)) -> Any:
        answer: Any = self.do("config.take_tokens", name, count, within)
        if getattr(answer, "granted", False):
            self._taken.append((name, self.clock.now() + answer.retry_in, count))
            self._check_windows(name)
        return answer

    @rule(
        name=scope,
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
        within=st.sampled_from([timedelta(0), SECOND, 60 * SECOND]),
    )
    def take_turns(self, name: str, counts: list[int], within: timedelta) -> None:
        self.do("config.take_turns", name, counts, within)

    @rule(
        asks=st.lists(_a_rate_ask, max_size=8),
        within=st.sampled_from([timedelta(0), SECOND, 60 * SECOND]),
    )
    def start_jobs_under_a_rate(self, asks: list[RateAsk], within: timedelta) -> None:
        self.do("config.take_or_turn", asks, within)

    def _check_windows(self, name: str) -> None:
        """In no window that ends with a token were more given than the bucket promises."""
        limit = self.world.buckets[name].limit
        total, given = 0, sorted(each[1:] for each in self._taken if each[0] == name)
        for at, count in reversed(given):
            total += count
            refilled = limit.capacity * ((given[-1][0] - at) / limit.period)
            assert total <= limit.capacity + refilled + 1e-6, "more tokens than promised"

    @rule()
    def look_at_settings(self) -> None:
        self.do("config.queues")
        self.do("config.rate_limits")
