"""When a pod must stop trusting itself, and when a reaper may judge others.

Both work on readings of ``Clock.elapsed`` that the caller passes in, and hold nothing else.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from forge_jobs.clock import Clock

_NO_TIMES: Mapping[str, datetime] = {}


class Fence:
    """Decides when a pod can no longer prove that it owns its claims.

    The store counts a lease from the moment it executed the beat, which is after the pod sent
    the beat. Counted here from the sending, the fence falls first, at any offset of the clocks.
    ``Clock.elapsed`` goes on during suspend, so a laptop that wakes up is fenced at once.

    Where a store has several parts, a queue whose part is silent is fenced by itself.

    :param lease: as given to the store with each beat
    :param margin: how long before the end of the lease handlers are stopped
    :param renewed_at: ``Clock.elapsed`` before the registration was sent
    """

    def __init__(self, lease: timedelta, margin: timedelta, renewed_at: float) -> None:
        self._allowed = (lease - margin).total_seconds()
        self._renewed_at = renewed_at
        self._behind: dict[str, float] = {}

    def renewed(self, sent_at: float, silent: Iterable[str] = ()) -> None:
        """A beat (or registration) sent at ``sent_at`` succeeded. Late answers are harmless.

        :param silent: queues whose part of the store did not answer
        """
        # In this order: who reads in between trusts too little.
        behind = {queue: self._behind.get(queue, self._renewed_at) for queue in silent}
        self._behind = {**self._behind, **behind}
        self._renewed_at = max(self._renewed_at, sent_at)
        self._behind = behind

    def close(self) -> None:
        """There will be no further beat: :meth:`must_stop` from now on, for good."""
        self._allowed = float("-inf")

    def must_stop(self, elapsed: float, queue: str = "") -> bool:
        """True: cancel the handlers now, before anyone else may revive their jobs.

        :param queue: whose handlers. "": all
        """
        # Asked for every job, and hardly ever is a queue behind.
        behind = self._behind
        renewed_at = behind.get(queue, self._renewed_at) if behind else self._renewed_at
        return elapsed - renewed_at >= self._allowed

    def overdue(self, elapsed: float) -> frozenset[str]:
        """Silent queues whose handlers must stop now."""
        return frozenset(queue for queue in self._behind if self.must_stop(elapsed, queue))

    def remaining(self, elapsed: float) -> timedelta:
        """The time until :meth:`must_stop`. Zero when that is due."""
        return timedelta(seconds=max(self._renewed_at + self._allowed - elapsed, 0.0))


class ReaperGuard:
    """Keeps a reaper from taking the pod's own trouble, or the store's, for the crash of other
    pods.

    After a suspend, an outage of the store, or a step of the store's clock, every claim looks
    stale although no pod died. So nothing is revived until one full lease of undisturbed passes
    has gone by, in which living pods have beaten again. The pod's wall clock is watched too:
    with SQLite that is the store's clock.

    :param lease: of claims
    :param interval: between two passes
    """

    def __init__(self, lease: timedelta, interval: timedelta) -> None:
        self._lease = lease.total_seconds()
        # A third of a lease: claims whose age grows by less do not look stale yet.
        self._longest_gap = interval.total_seconds() + self._lease / 3
        self._largest_jump = self._lease / 6
        self._last: tuple[float, float] | None = None
        self._offsets: dict[str, tuple[float, float]] = {}
        self._heard_since: dict[str, float] = {}
        self._undisturbed_since = 0.0
        self.must_look = True
        """A clock may have been set back: what the store holds may be dated ahead. True until
        the reaper has looked, and again after each disturbance."""

    def may_revive(
        self, clock: Clock, *, asked_at: float = 0.0, read_at: Mapping[str, datetime] = _NO_TIMES
    ) -> bool:
        """True when stale claims are stale. Call once per pass, and only when the store answered.

        A pass that failed is not reported, and so leaves a gap.

        :param asked_at: ``Clock.elapsed`` before the question for ``read_at``
        :param read_at: the time of each clock of the store, as ``JobStore.stale_claims`` read them
        """
        wall, elapsed = clock.time_us() / 1_000_000, clock.elapsed()
        self._note_heard(read_at, elapsed)
        has_stepped = self._has_store_stepped(read_at, asked_at, elapsed)
        if self._last is None or has_stepped or self._is_disturbed(self._last, wall, elapsed):
            self._undisturbed_since = elapsed
            self.must_look = True
        self._last = (wall, elapsed)
        return elapsed - self._undisturbed_since >= self._lease

    def may_revive_in(self, queue: str) -> bool:
        """True when stale claims of one queue are stale, after :meth:`may_revive`. The queue's part
        of the store may have been silent, so that no pod could beat there."""
        if self._last is None:
            return False
        since = self._heard_since.get(queue, self._undisturbed_since)
        return self._last[1] - since >= self._lease

    def reset(self) -> None:
        """Start over, after something that the clocks cannot show, for example a new lease."""
        self._last = None

    def _note_heard(self, read_at: Mapping[str, datetime], elapsed: float) -> None:
        """Of the first pass all clocks count as heard for as long as the pod has looked."""
        known = self._heard_since
        back = read_at.keys() - known.keys()
        if self._last is not None and back:
            self.must_look = True
        for name in back:
            # The clock may be that of a server which took over. Claims of other queues are not in
            # doubt.
            self._offsets.pop(name, None)
        self._heard_since = {name: known.get(name, elapsed) for name in read_at}

    def _is_disturbed(self, last: tuple[float, float], wall: float, elapsed: float) -> bool:
        wall_passed, passed = wall - last[0], elapsed - last[1]
        return passed > self._longest_gap or abs(wall_passed - passed) > self._largest_jump

    def _has_store_stepped(
        self, read_at: Mapping[str, datetime], asked_at: float, answered_at: float
    ) -> bool:
        """True when a clock of the store has moved against the steady clock of this process.

        The store read its clock at some instant between the question and the answer, so each
        reading gives the least and the greatest difference of the two clocks. A slow answer is
        no step: only readings whose bounds lie apart prove one.
        """
        has_stepped = False
        for name, at in read_at.items():
            time = at.timestamp()
            least, greatest = time - answered_at, time - asked_at
            before = self._offsets.get(name)
            if before is not None:
                moved = max(least - before[1], before[0] - greatest)
                has_stepped = has_stepped or moved > self._largest_jump
            self._offsets[name] = (least, greatest)
        return has_stepped
