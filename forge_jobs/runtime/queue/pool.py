"""The workers of one queue of a pod: as many as the grant allows, fed with claimed jobs."""

from collections import deque
from collections.abc import Iterator
from datetime import timedelta

from forge_jobs.model.jobs import Cause, Claim, ClaimedJob
from forge_jobs.model.processes import ClaimState, PodLease, QueueBeat
from forge_jobs.model.queues import QueueState
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.outages import Pauses
from forge_jobs.policy.claim_ahead import Appetite, Pace, Trip, ahead_limit
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.ends import decide, tell
from forge_jobs.runtime.queue.outbox import Outbox
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.worker import Worker, begin_all

logger = reporter(__name__)

_NO_DEMAND = Demand(worker_ids=(), limit=0, kinds=frozenset())
_SHORTEST_LOOK, _AFTER_COOLING = 0.005, 1.0
_LOOKS = Pauses(_SHORTEST_LOOK, 1.0)


class WorkerPool:
    """Grant, workers, and claims held ahead of the workers. Calls no store and waits for nothing.

    The loop asks what to claim and brings the claims. What the store must know goes into the
    outbox. Running handlers never exceed the grant. The pool lowers the grant before the store
    does, and only a beat that was sent after that raises the grant.
    """

    def __init__(self, queue: str, services: PodServices, outbox: Outbox) -> None:
        self.queue = queue
        self.grant = 0
        self.target = 0
        self.state: QueueState | None = None
        """The queue as the last beat saw it."""
        self.store_answers = True
        """False after a failed call of the loop, until a call goes well."""
        self._services = services
        self._outbox = outbox
        self._fit_is_due = False
        self._workers: set[Worker] = set()
        self._free: list[Worker] = []
        self._ahead: deque[ClaimedJob] = deque()
        self._draining = False
        self._fenced = False
        self._grant_known_at = float("-inf")
        self._may_have_work = False
        self._look_at: float | None = None
        self._fruitless = 0
        self._cooling_until = float("-inf")
        self._pace, self._trip = Pace(), Trip()
        self._has_backlog = False
        self._appetite = Appetite()

    @property
    def running(self) -> int:
        """Workers with a job in hand."""
        return len(self._workers) - len(self._free)

    @property
    def held_ahead(self) -> int:
        """Claims that no worker has taken yet."""
        return len(self._ahead)

    @property
    def waits_for_room(self) -> bool:
        """Return whether the queue would claim at once, were the pod not busy with other queues."""
        wants = self._may_have_work and bool(self._free) and self.store_answers
        return wants and self.accepts(self._services.clock.elapsed())

    def runs(self) -> Iterator[Run]:
        """Return the runs of the workers."""
        return (worker.run for worker in tuple(self._workers) if worker.run is not None)

    def accepts(self, now: float) -> bool:
        """Return whether new jobs may be claimed and started at ``now`` (``Clock.elapsed``)."""
        if self._draining or self._fenced or self._outbox.is_cut_off:
            return False
        if self.state is None or self.state.paused:
            return False
        # A process that was frozen may come here before the heartbeat's thread has fenced the pod.
        return now >= self._cooling_until and not self._services.fence.must_stop(now, self.queue)

    @property
    def _desired(self) -> int:
        """The number of workers to have."""
        return 0 if self._draining else min(self.grant, self.target)

    # -- what beats and wake-ups bring -------------------------------------------------------

    def hint(self) -> None:
        """Take note that the queue may have work."""
        self._may_have_work = True
        self._fruitless = 0
        self._outbox.wakeup.wake()

    def apply(self, beat: QueueBeat, sent_at: float) -> None:
        """Take over what a beat that was sent at ``sent_at`` says of the queue."""
        self.state = beat.state
        self.target = beat.slots.target
        if self._outbox.lower_to is not None or sent_at <= self._grant_known_at:
            self.grant = min(self.grant, beat.slots.grant)
            if self._outbox.lower_to is not None:
                self._outbox.lower_to = self.grant
        else:
            self.grant = beat.slots.grant
        cooling = beat.state.cooldown_remaining.total_seconds()
        # The end of a cool-down stays known: a moment later, an empty claim is repeated.
        self._cooling_until = sent_at + cooling if cooling else min(self._cooling_until, sent_at)
        self._look_within(beat.next_due_in)
        self._fit()
        self._go_on()

    def void_grant(self, at: float) -> None:
        """Give up the grant, which has ended with the pod's lease. Running handlers go on."""
        self.grant = 0
        self._outbox.lower_to = None
        self._grant_known_at = at
        self._fit()

    def stop_claim(self, claim: Claim, state: ClaimState) -> None:
        """End a claim that a beat found lost, or whose job is to be cancelled."""
        reason = StopReason.LOST if state is ClaimState.LOST else StopReason.CANCEL
        for run in self.runs():
            if run.job.claim == claim:
                if reason is StopReason.CANCEL or not run.may_be_settled:
                    run.stop(reason)
                return
        for job in self._ahead:
            if job.claim == claim:
                self._ahead.remove(job)
                self._end_unstarted(job, reason)
                return

    def drain(self, *, stops: bool = True) -> None:
        """Start nothing any more, and give back what is not started. ``stops``: for good."""
        self._draining = True
        for run in self.runs():
            run.pod_stops |= stops
        self._fit()

    def resume(self) -> None:
        """Take jobs again after a drain that was not for good."""
        self._draining = False
        self.hint()
        self._fit()

    def fence(self, fenced: bool) -> None:
        """Stop all handlers while the pod cannot prove the claims to be valid. Or go on."""
        self._fenced = fenced
        if fenced:
            self.stop_runs(StopReason.SHUTDOWN, self._services.fenced_patience)
        self._fit()
        self._go_on()

    def stop_runs(self, reason: StopReason, patience: float | None = None) -> None:
        """Ask all running handlers to end. ``patience``: see :meth:`Run.stop`."""
        for run in self.runs():
            run.stop(reason, patience)

    def demand(self, *, piggyback: bool) -> Demand:
        """Return what to claim now: jobs for free workers, and jobs to hold ahead.

        :param piggyback: a call is made anyway
        """
        services = self._services
        if self._look_at is not None and services.loop.time() >= self._look_at:
            self._look_at = None
            self._may_have_work = True
        wants = (self._may_have_work or piggyback) and not self._outbox.is_full
        if not (wants and self.accepts(services.clock.elapsed())):
            return _NO_DEMAND
        limit = self._room()
        if limit <= 0 or (limit < len(self._ahead) and not piggyback):
            # While half is left, more is not worth a separate call.
            return _NO_DEMAND
        limit = self._appetite.jobs(limit)
        if services.threads.problem:
            limit = services.threads.room(limit)
        if services.capacity:
            limit = services.capacity.room(self, limit, len(self._free))
        if not limit:
            return _NO_DEMAND
        # Cleared before the call: a hint that arrives during the call must count.
        self._may_have_work = False
        return Demand(
            worker_ids=tuple([worker.worker_id for worker in reversed(self._free)]),
            limit=limit,
            kinds=services.kinds,
            max_bytes=self._appetite.max_bytes,
        )

    def unanswered(self, demand: Demand) -> None:
        """Take note that the call failed, and that the jobs may still be there."""
        if self._services.capacity:
            self._services.capacity.answered(self)
        if demand.limit:
            self._may_have_work = True
            self._appetite.unanswered()

    def arrived(self, exchange: Exchange, demand: Demand, asked_at: float, lease: PodLease) -> None:
        """Start the new claims, or hold them ahead.

        :param asked_at: ``Clock.elapsed`` before the call that brought the claims
        :param lease: the pod's lease at that time
        """
        services = self._services
        claimed, now = exchange.claimed, services.clock.elapsed()
        if claimed:
            services.held.add([job.claim for job in claimed])
        self._trip.record(now - asked_at)
        if now - asked_at >= services.claims_last or lease != services.lease:
            # Another pod may be about to revive the jobs, or has the slots they were meant for.
            self._outbox.release([job.claim for job in claimed])
            self.unanswered(demand)
            return
        self._ahead.extend(claimed)
        if demand.limit:
            self._appetite.answered(claimed, demand)
            self._has_backlog = len(claimed) >= demand.limit
            self._fruitless = 0 if claimed or exchange.goes_on else self._fruitless + 1
            self._may_have_work |= self._has_backlog or exchange.goes_on
            if not self._has_backlog:
                self._look_within(exchange.next_due_in)
                if not claimed and now < self._cooling_until + _AFTER_COOLING:
                    # Counted by two clocks, the cool-down may have ended here a moment early.
                    self._look_within(timedelta(0))
        self._fit()
        if services.capacity:
            services.capacity.answered(self)

    def next_look(self) -> timedelta | None:
        """Return how long until the next job falls due, or the cool-down ends."""
        services = self._services
        if self._draining or self._fenced or self.state is None or self.state.paused:
            return None
        cooling = self._cooling_until - services.clock.elapsed()
        if cooling > 0:
            self._may_have_work = True
            return timedelta(seconds=max(cooling, _SHORTEST_LOOK))
        if self._look_at is None or self._room() <= 0 or self._outbox.is_full:
            return None
        return timedelta(seconds=max(self._look_at - services.loop.time(), _SHORTEST_LOOK))

    def lowered(self, to: int) -> None:
        """Take note that the store has lowered the grant ``to``."""
        if self._outbox.lower_to == to:
            self._outbox.lower_to = None
        self._grant_known_at = self._services.clock.elapsed()
        self._fit()

    def _room(self) -> int:
        """Return how many claims could be used now."""
        useful = (free := len(self._free)) + self._ahead_limit(free) - len(self._ahead)
        return min(useful, self._services.jobs.exchange_at_once)

    def _ahead_limit(self, free: int, *, to_keep: bool = False) -> int:
        horizon = self._services.settings.claim_ahead
        if self._has_backlog or to_keep:
            # Else other pods may be idle, and the job would wait for a worker here.
            horizon = self._trip.horizon(horizon)
        return ahead_limit(free, len(self._workers), self._pace.mean, horizon)

    def _look_within(self, due_in: timedelta | None) -> None:
        """Claim when the next job falls due, but not in a busy loop when claims stay empty."""
        if due_in is None:
            return
        now, pause = self._services.loop.time(), _LOOKS.at_most(self._fruitless + 1)
        look_at = now + max(due_in.total_seconds(), pause)
        # A look whose time has passed may have been missed while the queue was held up.
        passed = self._look_at is not None and self._look_at <= now
        if self._look_at is None or passed or look_at < self._look_at:
            self._look_at = look_at
            self._outbox.wakeup.wake()

    def _go_on(self) -> None:
        """Wake the loop, which may have gone to sleep while the queue was held up."""
        if self._may_have_work and self.accepts(self._services.clock.elapsed()):
            self._outbox.wakeup.wake()

    def _fit(self) -> None:
        """Match workers to the slots, give back what is too much, start what can start."""
        self._fit_is_due = False
        desired = self._desired
        while len(self._workers) < desired:
            worker = Worker(self._services, self._ended)
            self._workers.add(worker)
            self._free.append(worker)
            self._may_have_work = True
            self._outbox.wakeup.wake()
        while self._free and len(self._workers) > desired:
            worker = self._free.pop()
            self._workers.discard(worker)
            worker.retire()
        self._dispatch()
        self._give_back_ahead()
        still_needed = max(desired, self.running)
        if still_needed < self.grant:
            self.grant = still_needed
            self._outbox.lower(still_needed)

    def _give_back_ahead(self) -> None:
        """Release claims that may not be held ahead, or are twice too many. The pace of jobs
        varies."""
        if not (held := len(self._ahead)):
            return
        accepts = self.accepts(self._services.clock.elapsed())
        keep = self._ahead_limit(0, to_keep=True) if accepts else 0
        if held > 2 * keep:
            self._outbox.release([self._ahead.pop().claim for _ in range(held - keep)])

    def _dispatch(self) -> None:
        """Give claimed jobs to free workers."""
        ahead, free, services = self._ahead, self._free, self._services
        if not (ahead and free and self.accepts(now := services.clock.elapsed())):
            return
        taken: list[Worker] = []
        while ahead and free and not self._outbox.is_full:
            job = ahead.popleft()
            if job.cancel_requested:
                self._end_unstarted(job, StopReason.CANCEL)
            elif job.kind not in services.kinds:
                self._outbox.release([job.claim])
            else:
                taken.append(free.pop().take(job, self.state, now))
        call_is_next = self._may_have_work or self._outbox.ends.waiting
        begin_all(taken, services.loop if call_is_next else None)

    def _goes_on(self, worker: Worker, now: float) -> bool:
        """Give a worker the next job at once, when nothing has to be decided. False: not given.

        Otherwise a worker would wait for all others that end in the same turn of the event loop.
        """
        if not self._ahead or self._outbox.is_full or len(self._workers) > self._desired:
            return False
        job = self._ahead[0]
        if job.cancel_requested or job.kind not in self._services.kinds or not self.accepts(now):
            return False
        worker.take(self._ahead.popleft(), self.state, now).begin()
        return True

    def _end_unstarted(self, job: ClaimedJob, reason: StopReason) -> None:
        if reason is StopReason.LOST:
            self._services.held.remove([job.claim])
            self._services.claim_lost(self.queue, job.claim.job_id, "lost before its start")
            return
        services, end = self._services, AttemptEnd(cause=Cause.CANCELLED)
        transition = decide(end, job, self.state, 0.0, services)
        self._outbox.end(Finalization(job.claim, transition))
        tell(job, end, transition, 0.0, services, now=services.clock.elapsed())

    def _ended(self, worker: Worker, run: Run, end: AttemptEnd | None) -> None:
        now = (services := self._services).clock.elapsed()
        try:
            self._settle(run, end, now)
        except BaseException as error:  # a worker that is never freed costs a slot for good
            job_id = run.job.claim.job_id
            logger.exception("job %s: the end is not stored; the job is revived as crashed", job_id)
            # Only a reaper will end this claim, so no beat may keep the claim alive.
            services.given_up[run.job.claim] = now
            services.held.remove([run.job.claim])
            services.claim_lost(self.queue, job_id, f"no end: {type(error).__qualname__}")
        if self._goes_on(worker, now):
            return
        self._free.append(worker)
        if services.capacity:
            services.capacity.has_room()
        if self._draining:
            self._fit()
            services.run_ended.wake()
        elif not self._fit_is_due:
            # Once for all runs that end in this turn of the event loop.
            self._fit_is_due = True
            services.loop.call_soon(self._fit, context=services.context)

    def _settle(self, run: Run, end: AttemptEnd | None, now: float) -> None:
        """Store how the run ended, and report the end."""
        services, job = self._services, run.job
        seconds = now - run.started_at
        if end is None:
            if run.thread_goes_on:
                services.given_up[job.claim] = now
            services.held.remove([job.claim])
            services.progress.forget(job.claim)
            services.claim_lost(self.queue, job.claim.job_id, "lost while it ran")
            return
        transition = run.decided or decide(end, job, run.queue_state, seconds, services)
        if transition.cooldown is not None:
            until = now + transition.cooldown.length.total_seconds()
            self._cooling_until = max(self._cooling_until, until)
        self._outbox.end(Finalization(job.claim, transition))
        tell(job, end, transition, seconds, services, now=now)
        if end.cause is Cause.SUCCEEDED:
            self._pace.record(seconds, now)
