"""Holds or takes the leader lease. The holder shares the slots out over the pods."""

import contextvars
import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial

from msgspec import Struct, structs

from forge_jobs import stop_points
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, Leadership, Pod
from forge_jobs.policy.slots.plan import Needs, plan_allocations, unserved_kinds
from forge_jobs.reports import reporter
from forge_jobs.runtime.passes.starvation import StarvedKinds
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.threads import HandlerThread
from forge_jobs.storage.protocols import CronStore, ProcStore, Storage

logger = reporter(__name__)

LOOK_EVERY = timedelta(seconds=60)
"""The leader reads the slots this often although nothing seems to have changed."""

UNSERVED_FOR = timedelta(seconds=5)
"""How long a queue is without a pod before the log says so. Pods that serve queues by pattern find
a new one meanwhile."""

_TRIES = 3
"""How often one pass plans again because a pod changed the record in between."""

_NAMED = 5
"""So many queues have a line of their own. A store may have thousands."""

_SLOTS_ON_THE_LOOP = 2_000
"""A plan of more shares than this, some 5 ms of work, is made on another thread."""


class CoordinateReport(Struct, frozen=True, kw_only=True):
    """The result of one pass.

    :param term: of the leader lease as it stands, whichever pod holds it
    :param looked: the allocations were read. False in most passes of a steady fleet
    :param changed: queues whose slots were written
    :param starved: queue and kind whose due jobs had no slot, and get some from now on
    :param refused: writes that lost a race. The next pass plans them again
    :param unserved: queues with jobs that no live pod declares
    :param slotless: queues that live pods declare, and none of them has or gets a slot
    :param next_in: until the next pass, unless a wake-up comes
    """

    leading: bool
    term: int
    next_in: timedelta
    looked: bool = False
    changed: int = 0
    starved: tuple[tuple[str, str], ...] = ()
    refused: int = 0
    unserved: tuple[str, ...] = ()
    slotless: tuple[str, ...] = ()


class CoordinatorMemory:
    """The state of one pod between its coordinator passes.

    :param clock: only the elapsed reading is used
    :param starved_after: due jobs of a kind without any slot get slots after this
    """

    def __init__(
        self, clock: Clock | None = None, *, starved_after: timedelta = timedelta(seconds=4)
    ) -> None:
        self._clock = clock or SystemClock()
        self._trusted_until = float("-inf")
        self._fleet_version: str | None = None
        self._looked_at = float("-inf")
        self.starved = StarvedKinds(starved_after)
        self.term: int | None = None
        """The term this pod leads or last led. None before the first and after a resignation."""
        self.unserved: tuple[str, ...] = ()
        self.slotless: tuple[str, ...] = ()
        self.unserved_since: dict[str, float] = {}
        """Of queues that no pod serves. Infinity, once the log has said so."""
        self.is_alone = False
        """No pod but this one had a live lease when the allocations were last read."""

    def elapsed(self) -> float:
        """Return the clock on which this memory counts."""
        return self._clock.elapsed()

    def is_leader(self) -> bool:
        """Return whether this pod may act as leader at this instant.

        Cautious: the term counts from before the request for the lease, less a margin, on a clock
        that goes on while the machine sleeps. So the term ends here before another pod can lead.
        """
        return self._clock.elapsed() < self._trusted_until

    def learn(self, leadership: Leadership, host_id: HostId, trusted_until: float) -> bool:
        """Take note of how the lease stands. True: this pod has just begun a term."""
        if leadership.host_id != host_id:
            self.forget()
            return False
        begins = leadership.term != self.term
        if begins:
            # Another leader may have acted since this pod last looked.
            self.look_again()
        self.term = leadership.term
        self._trusted_until = trusted_until
        return begins

    def forget(self) -> None:
        """Lead no longer."""
        self._trusted_until = float("-inf")
        self._fleet_version = None
        self.term = None
        self.unserved = self.slotless = ()
        self.unserved_since = {}
        self.starved.forget()

    def look_again(self) -> None:
        """Trust no version that was seen: the store may have lost everything, and count anew."""
        self._fleet_version = None

    def must_look(self, fleet_version: str) -> bool:
        """Return whether the allocations may differ from those last seen."""
        overdue = self._clock.elapsed() - self._looked_at >= LOOK_EVERY.total_seconds()
        return overdue or fleet_version != self._fleet_version

    def looked(self, fleet_version: str | None) -> None:
        """Note that the allocations of this version are right. None: look again soon."""
        self._fleet_version = fleet_version
        self._looked_at = self._clock.elapsed()


async def coordinate_once(
    storage: Storage,
    host_id: HostId,
    settings: RuntimeSettings,
    memory: CoordinatorMemory,
    *,
    events: EventBuffer | None = None,
) -> CoordinateReport:
    """Hold the leader lease, or take a free one. As leader share the slots out.

    A steady fleet costs one call per pass, and no write but the renewal of the lease. A leader that
    slept past its term writes nothing: the lease must be renewed first, and each write holds only
    for the version of the record that was read.
    """
    lease = settings.leader_lease
    trusted_until = memory.elapsed() + (lease - _margin(settings)).total_seconds()
    leadership = await storage.cron.lead(host_id, lease)
    if memory.learn(leadership, host_id, trusted_until):
        logger.info("this pod leads the fleet from now on (term %d)", leadership.term)
        if events is not None:
            events.record(EventKind.LEADER, detail=f"term {leadership.term}")
    if not memory.is_leader():
        next_in = _until_free(leadership, host_id, settings)
        return CoordinateReport(leading=False, term=leadership.term, next_in=next_in)
    done = _Done()
    if memory.must_look(leadership.fleet_version):
        await _share_out(storage.procs, memory, done)
        memory.looked(None if done.refused else leadership.fleet_version)
    if starved := await _newly_starved(storage.procs, memory):
        await _share_out(storage.procs, memory, done)
    if done.allocations is not None:
        memory.is_alone = not done.refused and all(
            {host_id}.issuperset(each.pods) for each in done.allocations
        )
        _warn(done.allocations, memory)
    _warn_of_unserved(memory)
    return CoordinateReport(
        leading=True,
        term=leadership.term,
        next_in=_until_renewal(memory, settings),
        looked=done.allocations is not None,
        changed=done.changed,
        starved=tuple(starved),
        refused=done.refused,
        unserved=memory.unserved,
        slotless=memory.slotless,
    )


async def resign(cron: CronStore, host_id: HostId, memory: CoordinatorMemory) -> None:
    """Give the leader lease up at a clean stop, so that another pod leads at once.

    To be called when no pass is running any more. Does nothing when this pod does not lead.
    """
    term = memory.term
    memory.forget()
    if term is not None:
        await cron.resign(host_id, term)


def _margin(settings: RuntimeSettings) -> timedelta:
    """Return how much earlier than the store a leader believes its lease to end.

    A fifth: two passes still fit into the rest, as ``leader_lease`` allows for two at least.
    """
    return settings.leader_lease / 5


def _until_renewal(memory: CoordinatorMemory, settings: RuntimeSettings) -> timedelta:
    """Return how long a leader may rest. A pass renews the lease and notices pods that died.

    A pod alone has only the lease to renew, and a pod that joins wakes the leader.
    """
    if not memory.is_alone:
        return settings.coordinate_interval
    # Two passes must fit into the time that a leader trusts its lease.
    least = (settings.leader_lease - _margin(settings)) / 2
    return max(min(2 * settings.coordinate_interval, least), settings.coordinate_interval)


def _until_free(leadership: Leadership, host_id: HostId, settings: RuntimeSettings) -> timedelta:
    """Return how long a pod that does not lead may rest: no try succeeds before the lease ends.

    The rest is shorter than the lease, though: a leader that resigns wakes the others, and a
    wake-up may be lost.
    """
    interval = settings.coordinate_interval
    if leadership.host_id == host_id:
        return interval
    longest = max(min(2 * interval, settings.leader_lease / 2), interval)
    return max(min(leadership.remaining, longest), interval / 10)


class _Done:
    """The reads and writes of a pass.

    :ivar allocations: as last read, with what was written since. None: not read
    :ivar refused: writes of the last try that lost a race
    """

    def __init__(self) -> None:
        self.allocations: Sequence[Allocation] | None = None
        self.changed = 0
        self.refused = 0


async def _share_out(procs: ProcStore, memory: CoordinatorMemory, done: _Done) -> None:
    for _ in range(_TRIES):
        done.allocations = await procs.allocations()
        plan = await _planned(done.allocations, await procs.live_pods(), memory.starved.needs())
        done.refused = len(plan.changes)
        if not memory.is_leader():
            return
        written = await _written(procs, plan.changes)
        done.changed += sum(written)
        done.refused = written.count(False)
        if not done.refused:
            done.allocations = plan.outcome
            memory.starved.unserved(plan.unserved)
            return


async def _written(procs: ProcStore, changes: Sequence[AllocationChange]) -> list[bool]:
    if not changes:
        return []
    if stop_points.ARMED:
        await stop_points.reach("slots:planned")
    written = await procs.allocate(changes)
    if stop_points.ARMED:
        await stop_points.reach("slots:granted")
    return written


class _Plan(Struct, frozen=True):
    """A plan of the slots.

    :param outcome: the allocations once ``changes`` are written
    :param unserved: kinds per queue that no slot serves then
    """

    changes: Sequence[AllocationChange]
    outcome: Sequence[Allocation]
    unserved: dict[str, frozenset[str]]


async def _planned(allocations: Sequence[Allocation], pods: Sequence[Pod], needs: Needs) -> _Plan:
    """Make the plan, on another thread when handlers would notice."""
    make = partial(_plan, allocations, pods, needs)
    if sum(len(each.pods) for each in allocations) <= _SLOTS_ON_THE_LOOP:
        return make()
    try:
        # Not a thread of the loop's own pool: handlers may keep all of those busy.
        thread = HandlerThread("forge-jobs slot plan")
    except RuntimeError:  # there are no threads left
        return make()
    try:
        plan, error = await thread.call(make, contextvars.copy_context())
    finally:
        thread.close()
    if error is not None:
        raise error
    made: _Plan = plan
    return made


def _plan(allocations: Sequence[Allocation], pods: Sequence[Pod], needs: Needs) -> _Plan:
    changes = plan_allocations(allocations, pods, needs)
    after = {change.queue: change.slots for change in changes}
    outcome = [
        structs.replace(each, pods=after[each.queue]) if each.queue in after else each
        for each in allocations
    ]
    kinds = {pod.host_id: frozenset(pod.kinds) for pod in pods}
    unserved = {each.queue: frozenset(unserved_kinds(each, kinds)) for each in outcome}
    return _Plan(changes, outcome, {queue: found for queue, found in unserved.items() if found})


async def _newly_starved(procs: ProcStore, memory: CoordinatorMemory) -> Sequence[tuple[str, str]]:
    """Return the kinds that must get slots now. Asks the store only for kinds without slots."""
    queues = memory.starved.queues()
    if not queues or not memory.is_leader():
        return ()
    due = await procs.due_kinds(queues)
    starved = memory.starved.learn(queues, due, memory.elapsed())
    for queue, kind in starved:
        logger.info(
            "queue %r: due jobs of kind %r have no slot on any pod that knows the kind; "
            "slots move to such pods",
            queue,
            kind,
            extra={"queue": queue, "kind": kind},
        )
    return starved


def _warn(allocations: Sequence[Allocation], memory: CoordinatorMemory) -> None:
    """Log one line per queue without a slot when the trouble begins, not one per pass."""
    unserved = tuple(each.queue for each in allocations if not each.pods)
    slotless = tuple(each.queue for each in allocations if each.pods and _without_slot(each))
    switched_off = {each.queue for each in allocations if each.max_workers == 0}
    for queue in _new(slotless, memory.slotless):
        # The stop of the last pod is no trouble. A maximum of zero under a serving pod may be.
        logger.log(
            logging.WARNING if queue in switched_off else logging.INFO,
            "no pod has a slot of queue %r: %s",
            queue,
            "max_workers is 0"
            if queue in switched_off
            else "each pod of the queue is shutting down",
            extra={"queue": queue},
        )
    memory.unserved, memory.slotless = unserved, slotless


def _warn_of_unserved(memory: CoordinatorMemory) -> None:
    """Log one line for each queue that has been without a pod for some seconds, a few at most."""
    now = memory.elapsed()
    since = {queue: memory.unserved_since.get(queue, now) for queue in memory.unserved}
    late = [queue for queue, at in since.items() if now - at >= UNSERVED_FOR.total_seconds()]
    for queue in late[:_NAMED]:
        logger.warning(
            "queue %r has jobs and no live pod serves the queue (FORGE_QUEUES): start a worker "
            "with this queue, or cancel its jobs",
            queue,
            extra={"queue": queue},
        )
    if further := late[_NAMED:]:
        logger.warning(
            "%d further queues have jobs and no live pod serves them, from %r to %r: start workers "
            "with these queues, or cancel their jobs; forge-jobs problems names them",
            len(further),
            further[0],
            further[-1],
        )
    memory.unserved_since = since | dict.fromkeys(late, float("inf"))


def _without_slot(allocation: Allocation) -> bool:
    """Return whether no pod has a slot, and the plan gives none: stopping pods get no grants."""
    if any(slots.grant for slots in allocation.pods.values()):
        return False
    return allocation.max_workers == 0 or allocation.draining.issuperset(allocation.pods)


def _new(queues: Sequence[str], known: Collection[str]) -> list[str]:
    return [queue for queue in queues if queue not in known]
