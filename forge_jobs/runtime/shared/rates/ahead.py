"""Tokens for jobs that a pod has claimed and that begin a moment later."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from msgspec import structs

from forge_jobs.clock import Clock
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.queues import RateAsk
from forge_jobs.privacy.encryption import is_encrypted
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.rates.limiter import START_PATIENCE, RateLimiter

logger = reporter(__name__)

AHEAD = timedelta(milliseconds=100)
"""A job with such a token begins within this time after the call, or asks for another. Claims are
held ahead for half of it (``claim_ahead``), unless the store is far away."""

FEWEST = 1_000
"""Tokens of a bucket. One that holds fewer is soon empty where jobs are quick, and then each job
would ask twice."""

_PAUSE = 1.0
"""Seconds in which no tokens are taken ahead: of a rate limit that had few, or of any after jobs
have begun too late for theirs."""


class TokensAhead:
    """Takes the tokens of all jobs of a claim in one call, where plenty are there.

    A job whose token is not taken that way asks for it when it begins. For use on one event loop.

    :ivar serves: whether any handler declares a rate of which tokens are taken ahead
    """

    def __init__(self, limiter: RateLimiter, handlers: HandlerRegistry, clock: Clock) -> None:
        self._limiter = limiter
        self._clock = clock
        found = ((kind, handlers.get(kind)) for kind in handlers.kinds())
        self._handlers = {kind: each for kind, each in found if each and _is_large(each)}
        self._without_key = {
            kind: structs.replace(ask, ahead=AHEAD)
            for kind, each in self._handlers.items()
            if each.rate is not None and not each.rate.key and (ask := each.rate_ask("{}"))
        }
        self._asking: dict[JobId, asyncio.Event] = {}
        self._until: dict[JobId, float] = {}
        self._scarce: dict[str, float] = {}
        self._paused_until = float("-inf")
        self.serves = bool(self._handlers)

    def ask(self, jobs: Iterable[ClaimedJob]) -> None:
        """Ask for the tokens of jobs that were just claimed. Waits for nothing."""
        now = self._clock.elapsed()
        self._forget(now)
        if now < self._paused_until:
            return
        asked: dict[JobId, RateAsk] = {}
        for job in jobs:
            if (ask := self._ask_of(job, now)) is not None:
                asked[job.claim.job_id] = ask
        if not asked:
            return
        answered = asyncio.Event()
        self._asking |= dict.fromkeys(asked, answered)
        answer = self._limiter.ahead(list(asked.values()))
        patience = answer.get_loop().call_later(START_PATIENCE, answered.set)
        answer.add_done_callback(lambda _: patience.cancel())
        until = now + AHEAD.total_seconds()
        answer.add_done_callback(partial(self._answered, asked, answered, until))

    def take(self, job_id: JobId, now: float) -> bool:
        """Return whether the job has a token, and use the token up.

        :param now: ``Clock.elapsed``, at which the job begins
        """
        until = self._until.pop(job_id, None)
        if until is not None and until <= now:
            self._paused_until = now + _PAUSE
        return until is not None and until > now

    async def taken(self, job_id: JobId) -> bool:
        """:meth:`take`, after the answer where one is under way."""
        if (answered := self._asking.get(job_id)) is not None:
            await answered.wait()
        return self.take(job_id, self._clock.elapsed())

    def _ask_of(self, job: ClaimedJob, now: float) -> RateAsk | None:
        handler = self._handlers.get(job.kind)
        if handler is None or job.rate_limit or job.cancel_requested:
            return None
        ask = self._without_key.get(job.kind)
        if ask is None and not is_encrypted(job.payload):
            try:
                ask = handler.rate_ask(job.payload)
            except Exception:
                return None  # The run says what is wrong with such a payload.
            ask = ask and structs.replace(ask, ahead=AHEAD)
        return None if ask is None or self._scarce.get(ask.scope, now) > now else ask

    def _answered(
        self,
        asked: dict[JobId, RateAsk],
        answered: asyncio.Event,
        until: float,
        answer: "asyncio.Future[list[bool]]",
    ) -> None:
        for job_id in asked:
            self._asking.pop(job_id, None)
        answered.set()
        if answer.cancelled() or (error := answer.exception()) is not None:
            logger.debug("no tokens ahead: %s", "cancelled" if answer.cancelled() else error)
            return
        for (job_id, ask), granted in zip(asked.items(), answer.result(), strict=True):
            if granted:
                self._until[job_id] = until
            else:
                self._scarce[ask.scope] = self._clock.elapsed() + _PAUSE

    def _forget(self, now: float) -> None:
        """Forget tokens whose time has passed: their jobs begin late, or not here."""
        while self._until and self._until[first := next(iter(self._until))] <= now:
            del self._until[first]
            self._paused_until = now + _PAUSE


def _is_large(handler: Handler[..., object]) -> bool:
    return handler.rate is not None and handler.rate.capacity >= FEWEST
