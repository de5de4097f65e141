"""Time stops a microsecond before an event, and at that very instant.

A limit that is off by a microsecond shows nowhere else: the steps of time of the other rules are
longer.
"""

from collections.abc import Callable
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.clock import to_us
from forge_jobs.model.queues import QueueChange, RateLimit, Retention
from forge_jobs.model.transitions import Revival
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import (
    KEPT,
    LEADER_LEASE,
    LEASE,
    QUEUES,
    SECOND,
    queue,
)
from tests.conformance.model.rules.adversaries import AGAIN, Adversaries
from tests.conformance.model.rules.bookkeeping import Bookkeeping
from tests.conformance.model.rules.coordination import scope
from tests.conformance.model.rules.schedules import name_of

_MICROSECOND = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_TWO_SECONDS = st.sampled_from([SECOND, 2 * SECOND])
_KEPT = st.sampled_from(
    [
        Retention(done=timedelta(0), dead=timedelta(0), cancelled=timedelta(0)),
        Retention(done=2 * _MINUTE, dead=2 * _MINUTE, cancelled=2 * _MINUTE),
        Retention(max_done=0, max_dead=0, max_cancelled=0),
        Retention(max_done=1, max_dead=1, max_cancelled=1),
    ]
)


class Instants(Adversaries, Bookkeeping):
    def before_and_at(self, wait: timedelta, probe: Callable[[], object]) -> None:
        """Look a microsecond before ``wait`` is over, and when it is."""
        self.clock.advance(wait - _MICROSECOND)
        probe()
        self.clock.advance(_MICROSECOND)
        probe()

    @rule(name=queue, wait=_TWO_SECONDS, later=st.booleans())
    def falls_due(self, name: str, wait: timedelta, later: bool) -> None:
        lease = self.new_pod()
        if later:
            self.put_in([self.new_request(name, delay=wait, priority=-1)])
        else:
            self.stock(name)
            claims = self.take(name, lease, 1, 1)
            self.end(claims, ENDINGS["failed"])
            wait = 2 * SECOND
        self.before_and_at(wait, lambda: self._look_for_work(name))
        self.take(name, lease, 2, 2)

    def _look_for_work(self, name: str) -> None:
        self.do("jobs.counts", [name])
        self.take(name, self.new_pod(), 1, 1)

    @rule(name=queue, first=st.sampled_from(["claim", "expire"]))
    def expires(self, name: str, first: str) -> None:
        lease = self.new_pod()
        if first == "expire":
            self.do("jobs.expire", 1_000)
        expiring = self.clock.now() + 2 * SECOND
        self.put_in([self.new_request(name, expires_at=expiring, priority=-1) for _ in range(2)])
        self.clock.advance(2 * SECOND - _MICROSECOND)
        if first == "expire":
            self.do("jobs.expire", 1_000)
        else:
            self.take(name, lease, 1, 1)
        self.clock.advance(_MICROSECOND)
        self.take(name, lease, 1, 1)
        self.do("jobs.expire", 1_000)

    @rule(name=queue)
    def claim_falls_silent(self, name: str) -> None:
        self.stock(name)
        lease = self.new_pod()
        self.clock.advance(SECOND)
        claims = self.take(name, lease, 2, 2)
        self.clock.advance(SECOND)
        self.beat(lease, claims[:1])

        def look() -> None:
            self.look_for_stale()
            current = [job.claim for job in self.world.claimed()]
            self.do("jobs.revive", [Revival(each, AGAIN) for each in current], LEASE)

        self.before_and_at(LEASE - SECOND, look)
        self.before_and_at(SECOND, look)

    @rule(name=queue, beats=st.booleans())
    def lease_runs_out(self, name: str, beats: bool) -> None:
        """Expect that the rights of a lease last until the very end, and not at the end."""
        self.put_in([self.new_request(name, priority=-1) for _ in range(2)])
        lease = self.new_pod()
        self.share_out()
        if beats:
            self.clock.advance(SECOND)
            self.beat(lease, [])

        def look() -> None:
            self.do("procs.allocations")
            self.do("procs.pods")
            self.do("procs.live_pods")
            self.take(name, lease, 1, 1)

        self.before_and_at(LEASE, look)
        self.share_out()
        self.do("jobs.heartbeat", lease, [], LEASE)
        self.take(name, lease, 1, 1)
        self.look_for_stale()
        self.bring_back(AGAIN)
        self.before_and_at(LEASE, lambda: self._drop(LEASE))

    def _drop(self, dead_for: timedelta) -> None:
        self.do("procs.drop_dead_pods", dead_for, 1_000)
        self.plans.clear()

    @rule(name=queue, again=st.booleans())
    def cool_down_ends(self, name: str, again: bool) -> None:
        """A level outlives the pause by the quiet time, and no longer."""
        self.do("config.clear_cooldown", name)
        self.put_in([self.new_request(name, priority=-1) for _ in range(4)])
        self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS["throttled again"])
        lease = self.new_pod()
        self.before_and_at(2 * SECOND, lambda: self.take(name, lease, 1, 1))
        quiet = self.world.queues[name].settings.cooldown.quiet
        lease = self.new_pod()
        self.clock.advance(quiet - _MICROSECOND if again else quiet)
        current = [job.claim for job in self.world.claimed()]
        held = [each for each in current if each.queue == name]
        self.end(held[:1], ENDINGS["throttled"])
        self.do("config.queues")

    @rule(name=queue)
    def pause_is_not_shortened(self, name: str) -> None:
        """Throttle two jobs together: the longer pause and the higher level stay."""
        self.do("config.clear_cooldown", name)
        self.put_in([self.new_request(name, priority=-1) for _ in range(3)])
        claims = self.take(name, self.new_pod(), 3, 3)
        for claim, how in zip(claims, ["throttled", "throttled again", "throttled"], strict=False):
            self.end([claim], ENDINGS[how])
            self.do("config.queues")
            self.clock.advance(SECOND)
        # Late, and refused: no cool-down either.
        self.end(claims, ENDINGS["throttled"])
        self.do("config.queues")

    @rule(name=queue, kept=_KEPT, how=st.sampled_from(["done", "dead", "cancel"]))
    def retention_ends(self, name: str, kept: Retention, how: str) -> None:
        self.do("config.set_queue", name, QueueChange(retention=kept))
        self.put_in([self.new_request(name, priority=-1, result_ttl=SECOND) for _ in range(3)])
        lease = self.new_pod()
        claims = self.take(name, lease, 3, 3)
        for claim in claims:
            if how == "cancel":
                self.operate("cancel", claim.job_id)
            self.end([claim], ENDINGS["dead" if how == "cancel" else how])
            self.clock.advance(SECOND)
        self.before_and_at(_MINUTE - 3 * SECOND, lambda: self.do("jobs.cleanup", 1, kept=KEPT))
        self.do("jobs.cleanup", 1_000, kept=KEPT)
        self.look_at_jobs(everything=True)
        self.before_and_at(_MINUTE, lambda: self.do("jobs.cleanup", 1, kept=KEPT))
        self.look_at_jobs(everything=True)
        self.end(claims, ENDINGS["done"])

    @rule(name=queue, how=st.sampled_from(["done", "dead"]), kept=_KEPT)
    def result_ends(self, name: str, how: str, kept: Retention) -> None:
        self.do("config.set_queue", name, QueueChange(retention=kept))
        self.put_in([self.new_request(name, priority=-1, result_ttl=5 * SECOND)])
        self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS[how])
        self.look_at_jobs()

        def look() -> None:
            self.do("jobs.cleanup", 1_000, kept=KEPT)
            self.look_at_jobs(everything=True)

        self.before_and_at(5 * SECOND, look)

    @rule()
    def term_ends(self) -> None:
        """Expect that another pod leads from the very instant on, with a new term."""
        holder, other = self.new_pod(), self.new_pod()
        standing = self.lead_as(holder.host_id)
        lease = standing.remaining
        if not lease:
            return
        self.before_and_at(lease, lambda: self.lead_as(other.host_id))
        self.do("cron.resign", standing.host_id, standing.term)
        self.before_and_at(LEADER_LEASE, lambda: self.do("cron.leader"))
        self.lead_as(other.host_id)

    @rule(name=name_of, to=queue)
    def occurrence_comes(self, name: str, to: str) -> None:
        if self._next_occurrence() is None:
            self.edit_schedule(name, to, overlap=True)
            self.pause_schedule(name, paused=False)
        at = self._next_occurrence()
        assert at is not None

        def look() -> None:
            self.fire_all([self.firing_of(each) for each in self.read_due()])
            self.do("cron.schedules", with_deleted=True)

        self.before_and_at(at, look)

    def _next_occurrence(self) -> timedelta | None:
        now = self.clock.now()
        ahead = [
            each.next_at - now
            for each in self.world.schedules.values()
            if each.next_at is not None and each.next_at > now
        ]
        return min(ahead, default=None)

    @rule(limit=st.sampled_from([1, 2, 1_000]))
    def minute_closes(self, limit: int) -> None:
        """Expect that the counts of an open minute are not folded, and that sums never change."""
        passed = timedelta(microseconds=to_us(self.clock.now()) % 60_000_000)

        def look() -> None:
            self.do("jobs.roll_up", limit)
            for name in QUEUES:
                self.read_metrics(name)

        self.before_and_at(_MINUTE - passed, look)
        self.before_and_at(_MINUTE, look)

    @rule(scope=scope, count=st.integers(1, 3))
    def tokens_come_back(self, scope: str, count: int) -> None:
        """A refusal says when there are enough, to the microsecond."""
        if scope not in self.world.buckets:
            self.deploy_rate_limit(scope, RateLimit(3, 5 * SECOND))
        self.do("config.drain_tokens", scope)
        answer = self.take_tokens_of(scope, count)
        wait = getattr(answer, "retry_in", timedelta(0))
        if wait:
            self.before_and_at(wait, lambda: self._try_tokens(scope, count))

    def _try_tokens(self, scope: str, count: int) -> None:
        self.do("config.rate_limits")
        self.take_tokens_of(scope, count)
