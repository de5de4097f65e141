"""The lane of one queue to the store: ends of claims go out, new claims come in."""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import structs

from forge_jobs import stop_points
from forge_jobs.errors import CONCERNS_ALL, StorageClosed, Unavailable
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.reports import reporter
from forge_jobs.runtime.service import Wakeup
from forge_jobs.runtime.services import PodServices

logger = reporter(__name__)

BATCH = 1_000
BATCH_BYTES = 4 * 1024 * 1024
"""Results in one call at most; a larger one travels alone."""

BACKLOG = 1_000
"""Ends that may wait for the store before no further job is started."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

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
    because they are fenced, for as long as the lane lives. It dies when the program closes its
    storage: from then on the pod lets go of whatever ends, so that others revive it.
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
        self._queue = queue
        self._services = services
        self._desk = desk
        self._ends: deque[Finalization] = deque()
        self._releases: deque[Claim] = deque()
        self._retry = Wakeup()
        self._closing = False
        self._gave_up = False
        self._logged = ""

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
        return len(self._ends) >= BACKLOG

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be stored."""
        return not (self._ends or self._releases or self.in_flight)

    def settle(self, end: Finalization) -> None:
        """Store the end of a claim, some time; the caller need not wait."""
        if not self._ends:
            # With others waiting, the lane has been rung or looks again by itself.
            self.wakeup.ring()
        self._ends.append(end)
        if self.is_cut_off:
            self._let_go([end.claim])

    def release(self, claims: Iterable[Claim]) -> None:
        """Hand unstarted claims back, some time."""
        released = tuple(claims)
        self._releases.extend(released)
        self.wakeup.ring()
        if self.is_cut_off:
            self._let_go(released)

    def store_is_back(self) -> None:
        """Do not wait any longer before the next try."""
        if self.failures:
            self._retry.ring()

    def close(self) -> None:
        """End :meth:`run` once everything is stored."""
        self._closing = True
        self.wakeup.ring()
        self._retry.ring()

    def give_up(self) -> None:
        """End :meth:`run` after the call in flight, stored or not."""
        self._gave_up = True
        self.close()

    def waiting_claims(self) -> list[Claim]:
        """Claims whose end or release is not stored."""
        return [end.claim for end in self._ends] + list(self._releases)

    async def run(self) -> None:
        """Call after call until closed."""
        while not self._gave_up and not (self._closing and self.is_idle):
            try:
                busy = await self._turn()
            except StorageClosed:
                self._cut_off()
                raise
            except Exception as error:  # the lane outlives whatever a call raises
                await self._retry.wait(self._failed(error))
                continue
            self._worked()
            if not busy and not (self._closing and self.is_idle):
                await self.wakeup.wait(self._desk.next_look())

    async def _turn(self) -> bool:
        """Make the calls that are due; False when there were none."""
        busy = False
        if self._releases:
            await self._hand_back()
            busy = True
        lower_to = self._desk.surplus()
        if lower_to is not None and not self._releases and not self._closing:
            # A pod that leaves takes its grants with it.
            await self._services.storage.procs.lower_grants(
                self._services.lease, {self._queue: lower_to}
            )
            self._desk.lowered()
            busy = True
        ends = self._next_ends()
        demand = self._desk.demand(piggyback=bool(ends))
        if ends or demand.limit:
            await self._exchange(ends, demand)
            busy = True
        return busy

    def _next_ends(self) -> list[Finalization]:
        """The oldest ends, as many as one call may carry."""
        ends: list[Finalization] = []
        size = 0
        for end in itertools.islice(self._ends, BATCH):
            size += len(end.transition.result or "")
            if size > BATCH_BYTES and ends:
                break
            ends.append(end)
        return ends

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
        except CONCERNS_ALL:
            self._desk.unanswered(demand)
            raise
        except Exception:
            self._desk.unanswered(demand)
            if not ends:
                raise
            await self._settle_apart(ends)
            return
        finally:
            self.asked_at = None
        self._settled(ends, exchange.settled)
        self._desk.arrived(exchange, demand, asked_at, lease)

    async def _hand_back(self) -> None:
        claims = list(itertools.islice(self._releases, BATCH))
        try:
            await self._services.jobs.release(claims)
        except CONCERNS_ALL:
            raise
        except Exception:
            # Kept, they would hold up all other calls; dropped, they are revived once stale.
            logger.exception("queue %s: %d claims cannot be given back", self._queue, len(claims))
        for _ in claims:
            self._releases.popleft()
        self._services.held.remove(claims)

    def _settled(self, ends: Sequence[Finalization], applied: Sequence[bool | None]) -> None:
        for end, was_applied in zip(ends, applied, strict=True):
            self._ends.popleft()
            claim = end.claim
            if was_applied is None:
                self._ends.append(end)
                continue
            self._services.held.remove([claim])
            if not was_applied:
                self._services.claim_lost(claim.queue, claim.job_id, "its end was refused")

    async def _settle_apart(self, ends: Sequence[Finalization]) -> None:
        """Store a batch that was refused as a whole: halve it until the guilty end stands alone.

        A guilty end is stored without the texts that came with it; when that is refused too, it
        is dropped, and its job is revived once its claim is stale.
        """
        if len(ends) > 1:
            middle = len(ends) // 2
            for half in (ends[:middle], ends[middle:]):
                try:
                    self._settled(half, await self._services.jobs.finalize(half))
                except CONCERNS_ALL:
                    raise
                except Exception:
                    await self._settle_apart(half)
            return
        [end] = ends
        claim = end.claim
        logger.exception(
            "the store refuses the end of job %s; it is stored without error text and result",
            claim.job_id,
            extra={"job_id": claim.job_id, "queue": claim.queue},
        )
        try:
            self._settled(ends, await self._services.jobs.finalize([_bare(end)]))
        except CONCERNS_ALL:
            raise
        except Exception:
            logger.exception("the end of job %s cannot be stored", claim.job_id)
            self._ends.popleft()
            self._let_go([claim])

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
        if self.failures:
            logger.info("queue %s: the store answers again", self._queue)
        self.failures = 0
        self._logged = ""

    def _failed(self, error: Exception) -> timedelta:
        self.failures += 1
        cause = f"{type(error).__qualname__}: {error}"
        if cause != self._logged:
            self._logged = cause
            logger.warning(
                "queue %s: the store does not answer, trying again: %s",
                self._queue,
                cause,
                exc_info=None if isinstance(error, Unavailable) else error,
                extra={"queue": self._queue},
            )
        pause = min(_FIRST_PAUSE * 2 ** min(self.failures - 1, 10), _LONGEST_PAUSE)
        return timedelta(seconds=pause * self._services.rng.uniform(0.5, 1.0))


async def _reach(moment: str, ends: Sequence[Finalization], demand: Demand) -> None:
    if ends:
        await stop_points.reach(f"finalize:{moment}")
    if demand.limit:
        await stop_points.reach(f"claim:{moment}")


def _bare(end: Finalization) -> Finalization:
    transition = end.transition
    error = transition.error
    if error is not None:
        error = structs.replace(error, message="(refused by the store)", traceback="")
    return Finalization(end.claim, structs.replace(transition, result=None, error=error))
