"""The loop of one queue of a pod: the only caller of the store for claims, ends and grants."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from forge_jobs import stop_points
from forge_jobs.errors import StorageClosed, Unavailable
from forge_jobs.home_loop import next_turn
from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.outages import Line, Outage, Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.outbox import Outbox
from forge_jobs.runtime.queue.pool import WorkerPool
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.shared.failure_texts import failure_of, health_text_of

logger = reporter(__name__)

_PAUSES = Pauses(0.05, 1.0)

_DOUBTS_AFTER = 3
"""Failures in a row, while beats are answered, after which the ends may be at fault."""

_TURNS_TO_ASK = 4
"""Turns of the event loop from the moment when a job is given to a worker to its request for a
token: the worker begins, the job asks, and the lane of such requests makes the call."""

_LONGEST_CALL = 60.0
"""Seconds. Stores give a call up after half of that."""


class QueueLoop:
    """Calls the store for one queue, with at most one call in flight. New work waits for the next
    call.

    :meth:`run` is a task of its own that is never cancelled: a claim that was cancelled half way
    would go on in the store with no owner. Ends that cannot be stored are kept and sent again,
    which is safe because the store refuses the end of a lost claim. The loop ends when the program
    closes the storage. From then on the pod lets go of all claims, so that other pods revive the
    jobs.

    :ivar pool: the workers. The loop calls the pool, and the pool never calls the loop
    :ivar outbox: all that the pool and others have for the store
    """

    def __init__(self, queue: str, services: PodServices) -> None:
        self.queue = queue
        self.outbox = Outbox(queue, services)
        self.pool = WorkerPool(queue, services, self.outbox)
        self.leaves = False
        """The pod is about to serve the queue no longer."""
        self.calls_begun = 0
        self.asked_at: float | None = None
        """``Clock.elapsed`` at the start of the call in flight."""
        self.failures = 0
        """Calls in a row that the store did not answer."""
        self.trouble = ""
        """Why calls fail. Empty while they go well."""
        self._services = services
        self._outage = Outage()
        self._skips_pause = False
        self._asked = 0
        self._closing = False
        self._gave_up = False

    def is_overdue(self, now: float) -> bool:
        """Return whether a call has been in flight for longer than any call may take."""
        return self.asked_at is not None and now - self.asked_at > _LONGEST_CALL

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits to be stored except the items set aside."""
        return self.asked_at is None and not self.outbox

    def store_is_back(self) -> None:
        """End the pause before the next try."""
        if self.failures:
            self.outbox.doubts = self.failures >= _DOUBTS_AFTER
            self._skip_pause()

    def close(self) -> None:
        """End :meth:`run` once everything is stored."""
        self._closing = True
        self._skip_pause()
        self.outbox.aside.hurry()

    def give_up(self) -> None:
        """End :meth:`run` after the call in flight, stored or not."""
        self._gave_up = True
        self.close()
        self.outbox.aside.give_up()

    def _skip_pause(self) -> None:
        self._skips_pause = True
        self.outbox.wakeup.wake()

    async def run(self) -> None:
        """Make call after call until closed."""
        outbox, pool = self.outbox, self.pool
        while not self._gave_up and not (self._closing and self.is_idle):
            try:
                was_busy = await self._turn()
            except StorageClosed:
                self.failures += 1
                outbox.cut_off()
                outbox.aside.give_up()
                raise
            except Exception as error:  # the loop outlives whatever a call raises
                await self._pause(self._failed(error))
                continue
            if self.failures:
                self._succeeded()
            if not was_busy and not (self._closing and self.is_idle):
                await outbox.wakeup.wait(pool.next_look())
        if self._outage.is_over():
            self._services.outages.ends(self.queue)
        outbox.aside.close()

    async def _turn(self) -> bool:
        """Make the calls that are due. False: no call was due."""
        outbox, pool = self.outbox, self.pool
        was_busy = False
        if outbox.releases.waiting:
            await self._release(outbox.releases.first())
            was_busy = True
        lower_to = outbox.lower_to
        if lower_to is not None and not outbox.releases.waiting and not self._closing:
            # The grants of a pod that leaves end with the pod.
            procs = self._services.storage.procs
            await procs.lower_grants(self._services.lease, {self.queue: lower_to})
            pool.lowered(lower_to)
            was_busy = True
        asked = self._services.rate_limit.asked
        if asked != self._asked:
            await _let_ask()
        ends: Sequence[Finalization] = outbox.ends.first() if outbox.ends.waiting else ()
        progress = self._services.progress
        if ends and progress.waiting:
            # The last words of a run are there when the end is seen.
            claims = [end.claim for end in ends]
            await progress.settle(claims, lambda error: not outbox.is_of_all(error))
        demand = pool.demand(piggyback=bool(ends))
        if ends or demand.limit:
            # The count before: what was asked since says that the next jobs will ask too.
            self._asked = asked
            await self._exchange(ends, demand)
            was_busy = True
        return was_busy

    async def _exchange(self, ends: Sequence[Finalization], demand: Demand) -> None:
        services, outbox = self._services, self.outbox
        asked_at, lease = services.clock.elapsed(), services.lease
        self.calls_begun += 1
        self.asked_at = asked_at
        try:
            if stop_points.ARMED:
                await _reach("before", ends, demand)
            exchange = await services.jobs.exchange(self.queue, ends, demand, lease)
            if stop_points.ARMED:
                await _reach("committed", ends, demand)
        except Exception as error:
            self.asked_at = None
            self.pool.unanswered(demand)
            if not ends or outbox.is_of_all(error):
                raise
            await outbox.ends.search(ends, error, self._only_claim)
            return
        finally:
            self.asked_at = None
        if ends:
            outbox.ends.answered(ends, exchange.settled)
        if ends or exchange.claimed:
            services.jobs.announce_changes([self.queue])
        if exchange.claimed and services.tokens.serves:
            services.tokens.ask(exchange.claimed)
        self.pool.arrived(exchange, demand, asked_at, lease)

    async def _only_claim(self) -> bool:
        """Claim, to learn whether the store takes any call at all. False: nothing to claim."""
        demand = self.pool.demand(piggyback=True)
        if demand.limit:
            await self._exchange((), demand)
        return bool(demand.limit)

    async def _release(self, claims: Sequence[Claim]) -> None:
        releases = self.outbox.releases
        try:
            releases.answered(claims, await self._services.jobs.release(claims))
        except Exception as error:
            if self.outbox.is_of_all(error):
                raise
            await releases.search(claims, error, self._only_claim)

    def _succeeded(self) -> None:
        line = self._services.outages.ends(self.queue) if self._outage.is_over() else Line.NONE
        if line is not Line.NONE:
            logger.info("%s: the store answers again", self._named_by(line))
        self.failures = 0
        self.trouble = ""
        self.outbox.doubts = False
        self.pool.store_answers = True

    def _failed(self, error: Exception) -> float:
        """Report a failed call, and return how many seconds to pause."""
        self.failures += 1
        self.trouble = health_text_of(error)
        self.pool.store_answers = False
        cause = f"{type(error).__qualname__}: {error}"
        is_new = self._outage.is_new(cause)
        line = self._services.outages.begins(self.queue, cause) if is_new else Line.NONE
        if line is not Line.NONE:
            logger.warning(
                "%s: %s, trying again: %s",
                self._named_by(line),
                failure_of(error),
                cause,
                exc_info=None if isinstance(error, Unavailable) else error,
                extra={"queue": self.queue},
            )
        return _PAUSES.after(self.failures, self._services.rng)

    def _named_by(self, line: Line) -> str:
        return f"queue {self.queue}" if line is Line.OWN else "further queues"

    async def _pause(self, seconds: float) -> None:
        """Wait. New work does not shorten the pause, an answered beat does."""
        loop = self._services.loop
        until = loop.time() + seconds
        while not self._skips_pause and (left := until - loop.time()) > 0:
            await self.outbox.wakeup.wait(timedelta(seconds=left))
        self._skips_pause = False


async def _let_ask() -> None:
    """Let jobs that begin ask for their tokens.

    Behind a call with many ends the short one for tokens would wait for long, and with it each
    worker. So that call goes out first.
    """
    for _ in range(_TURNS_TO_ASK):
        await next_turn()


async def _reach(moment: str, ends: Iterable[Finalization], demand: Demand) -> None:
    if ends:
        await stop_points.reach(f"finalize:{moment}")
    if demand.limit:
        await stop_points.reach(f"claim:{moment}")
