"""The lane of one queue to the store: ends of claims go out, new claims come in."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from forge_jobs import stop_points
from forge_jobs.errors import CONCERNS_ALL, StorageClosed, StorageRefused, Unavailable
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.outages import Outage, Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.outgoing import Ends, Releases
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.set_aside import SetAside
from forge_jobs.runtime.shared.failure_texts import failure_of, health_text_of
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

BACKLOG = 1_000
"""Ends that may wait for the store before no further job is started."""

_PAUSES = Pauses(0.05, 1.0)

_DOUBTS_AFTER = 3
"""Failures in a row, while beats are answered, after which it may be the ends that are at fault."""

_LONGEST_CALL = 60.0
"""Seconds. Stores give a call up after half of that."""


class Desk(Protocol):
    """What the lane asks of its supervisor."""

    def demand(self, *, piggyback: bool) -> Demand:
        """How much may be claimed now; ``piggyback``: a call is made anyway."""
        ...

    def arrived(self, exchange: Exchange, demand: Demand, asked_at: float, lease: PodLease) -> None:
        """New claims, asked for at ``asked_at`` (``Clock.elapsed``) under ``lease``."""
        ...

    def unanswered(self, demand: Demand) -> None:
        """The call that was to bring claims failed."""
        ...

    def next_look(self) -> timedelta | None:
        """When to claim without being rung; None: not at all."""
        ...

    def surplus(self) -> int | None:
        """The grant to lower to; None: nothing to give back."""
        ...

    def lowered(self) -> None:
        """The store has lowered the grant."""
        ...


class ExchangeLane:
    """At most one call in flight; whatever arrives meanwhile travels with the next one.

    :meth:`run` is a task of its own that nobody cancels: a claim cancelled half way goes on in
    the store with no owner. Ends that cannot be stored are kept and repeated, which is safe
    because they are fenced, for as long as the lane lives; those that the store refuses while it
    takes others wait in :attr:`aside`. The lane dies when the program closes its storage: from then
    on the pod lets go of whatever ends, so that others revive it.
    """

    def __init__(self, queue: str, services: PodServices, desk: Desk) -> None:
        self.wakeup = Wakeup()
        self.calls_begun = 0
        self.asked_at: float | None = None
        """``Clock.elapsed`` when the call in flight was begun."""
        self.failures = 0
        """Calls in a row that the store did not answer."""
        self.is_cut_off = False
        """The program has closed the storage: nothing can be claimed or stored any more."""
        self.trouble = ""
        """What is in the way of the calls; empty while they go well."""
        self.aside = SetAside(queue, services)
        self._queue = queue
        self._services = services
        self._desk = desk
        self._ends = Ends(services, self.aside, self._is_of_all, self._let_go)
        self._releases = Releases(services, self.aside, self._is_of_all, self._let_go)
        self._retry = Wakeup()
        self._doubts = False
        self._closing = False
        self._gave_up = False
        self._outage = Outage()

    @property
    def in_flight(self) -> bool:
        """A call is under way that may bring claims."""
        return self.asked_at is not None

    def is_overdue(self, now: float) -> bool:
        """A call has been under way for longer than any call may take."""
        return self.asked_at is not None and now - self.asked_at > _LONGEST_CALL

    @property
    def is_full(self) -> bool:
        """So many ends wait for the store that no further job may start."""
        return len(self._ends.waiting) >= BACKLOG or self.aside.count >= BACKLOG

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be stored but what is set aside."""
        return not (self._ends.waiting or self._releases.waiting or self.in_flight)

    def settle(self, end: Finalization) -> None:
        """Store the end of a claim, some time; the caller need not wait."""
        if not self._ends.waiting:
            # With others waiting, the lane has been rung or looks again by itself.
            self.wakeup.wake()
        self._ends.waiting[id(end)] = end
        if self.is_cut_off:
            self._let_go([end.claim])

    def release(self, claims: Iterable[Claim]) -> None:
        """Hand unstarted claims back, some time."""
        released = tuple(claims)
        self._releases.put(released)
        self.wakeup.wake()
        if self.is_cut_off:
            self._let_go(released)

    def store_is_back(self) -> None:
        """Do not wait any longer before the next try."""
        if self.failures:
            self._doubts = self.failures >= _DOUBTS_AFTER
            self._retry.wake()

    def close(self) -> None:
        """End :meth:`run` once everything is stored."""
        self._closing = True
        self.wakeup.wake()
        self._retry.wake()
        self.aside.hurry()

    def give_up(self) -> None:
        """End :meth:`run` after the call in flight, stored or not."""
        self._gave_up = True
        self.close()
        self.aside.give_up()

    def waiting_claims(self) -> list[Claim]:
        """Claims whose end or release is not stored."""
        return [*self._ends.claims(), *self._releases.claims(), *self.aside.claims()]

    async def run(self) -> None:
        """Call after call until closed."""
        while not self._gave_up and not (self._closing and self.is_idle):
            try:
                busy = await self._turn()
            except StorageClosed:
                self._cut_off()
                self.aside.give_up()
                raise
            except Exception as error:  # the lane outlives whatever a call raises
                await self._retry.wait(self._failed(error))
                continue
            self._worked()
            if not busy and not (self._closing and self.is_idle):
                await self.wakeup.wait(self._desk.next_look())
        self.aside.close()

    async def _turn(self) -> bool:
        """Make the calls that are due; False when there were none."""
        busy = False
        if self._releases.waiting:
            await self._hand_back()
            busy = True
        lower_to = self._desk.surplus()
        if lower_to is not None and not self._releases.waiting and not self._closing:
            # A pod that leaves takes its grants with it.
            await self._services.storage.procs.lower_grants(
                self._services.lease, {self._queue: lower_to}
            )
            self._desk.lowered()
            busy = True
        ends = self._ends.first()
        demand = self._desk.demand(piggyback=bool(ends))
        if ends or demand.limit:
            await self._exchange(ends, demand)
            busy = True
        return busy

    async def _exchange(self, ends: Sequence[Finalization], demand: Demand) -> None:
        services = self._services
        asked_at, lease = services.clock.elapsed(), services.lease
        self.calls_begun += 1
        self.asked_at = asked_at
        try:
            if stop_points.ARMED:
                await _reach("before", ends, demand)
            exchange = await services.jobs.exchange(self._queue, ends, demand, lease)
            if stop_points.ARMED:
                await _reach("committed", ends, demand)
        except Exception as error:
            self.asked_at = None
            self._desk.unanswered(demand)
            if not ends or self._is_of_all(error):
                raise
            await self._ends.search(ends, error, self._only_claim)
            return
        finally:
            self.asked_at = None
        self._ends.answered(ends, exchange.settled)
        self._desk.arrived(exchange, demand, asked_at, lease)

    async def _only_claim(self) -> bool:
        """Claim, which shows whether the store takes anything at all; False: nothing to claim."""
        demand = self._desk.demand(piggyback=True)
        if demand.limit:
            await self._exchange((), demand)
        return bool(demand.limit)

    async def _hand_back(self) -> None:
        claims = self._releases.first()
        try:
            self._releases.answered(claims, await self._services.jobs.release(claims))
        except Exception as error:
            if self._is_of_all(error):
                raise
            await self._releases.search(claims, error, self._only_claim)

    def _is_of_all(self, error: Exception) -> bool:
        """It befalls every call of the store, whatever is in it."""
        if isinstance(error, StorageRefused) or not isinstance(error, CONCERNS_ALL):
            return False
        return not (self._doubts and isinstance(error, Unavailable))

    def _cut_off(self) -> None:
        self.failures += 1
        self.is_cut_off = True
        self._let_go(self.waiting_claims())

    def _let_go(self, claims: Iterable[Claim]) -> None:
        """Beat for these claims no longer; only a reaper can end them now."""
        released = tuple(claims)
        self._services.given_up.update(dict.fromkeys(released, self._services.clock.elapsed()))
        self._services.held.remove(released)

    def _worked(self) -> None:
        if self._outage.is_over():
            logger.info("queue %s: the store answers again", self._queue)
        self.failures = 0
        self.trouble = ""
        self._doubts = False

    def _failed(self, error: Exception) -> timedelta:
        self.failures += 1
        self.trouble = health_text_of(error)
        cause = f"{type(error).__qualname__}: {error}"
        if self._outage.is_new(cause):
            logger.warning(
                "queue %s: %s, trying again: %s",
                self._queue,
                failure_of(error),
                cause,
                exc_info=None if isinstance(error, Unavailable) else error,
                extra={"queue": self._queue},
            )
        return timedelta(seconds=_PAUSES.after(self.failures, self._services.rng))


async def _reach(moment: str, ends: Sequence[Finalization], demand: Demand) -> None:
    if ends:
        await stop_points.reach(f"finalize:{moment}")
    if demand.limit:
        await stop_points.reach(f"claim:{moment}")
