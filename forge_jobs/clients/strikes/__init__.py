"""The strikes as a program knows them: before it enqueues a job, and before a run."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec import structs

from forge_jobs.errors import StorageError
from forge_jobs.lanes import Lane
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.strikes import Strike, name_of, struck_by
from forge_jobs.policy.strikes import Judge
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols.config import ConfigStore

logger = reporter(__name__)

READ_EVERY = timedelta(seconds=10)
"""How often a pod reads the strikes, whether or not a wake-up came, and a client that enqueues."""


class Strikes:
    """The strikes at the last reading.

    A client reads before its first enqueue. Later readings go on beside the calls, so that none
    waits for them. What an older view lets through is judged before the run.

    :ivar are_asked: whether a run has to ask: there are strikes, or none were read yet
    :ivar judge: gives new jobs the fate that a strike has for them. None: there are no strikes, as
        far as is known
    :ivar is_due: whether a client that enqueues has to call :meth:`refresh` first
    """

    def __init__(self, config: ConfigStore) -> None:
        self.are_asked = True
        self.judge: Callable[[NewJob], NewJob] | None = None
        self.is_due = True
        self._config = config
        self._known: Judge | None = None
        self._readings: Lane[None, Judge] = Lane(self._read, repeat_for=timedelta(0))
        self._timer: asyncio.TimerHandle | None = None
        self._beside: asyncio.Task[None] | None = None

    async def read(self) -> Judge:
        """Read the strikes of the store. Callers of one moment share a call.

        :raises Unavailable: the store did not answer
        """
        return await self._readings.submit(None)

    async def verdict(self, kind: str, payload: Callable[[], str]) -> Strike | None:
        """Return the strike that means a job, None when none does.

        A job is held by what the store says now, never by a strike that has been lifted.

        :raises Unavailable: the store did not answer
        """
        judge = self._known or await self.read()
        if judge.verdict(kind, payload) is None:
            return None
        return (await self.read()).verdict(kind, payload)

    async def refresh(self) -> None:
        """Read for the first time, and from then on beside the caller. Never raises."""
        if self._timer is None:
            await self.read_again()
        else:
            # Only the first of the callers that find the view old.
            self.is_due = False
            self._beside = asyncio.create_task(self.read_again())

    async def read_again(self) -> None:
        """Read the strikes, and keep the view of before where the store does not say them."""
        try:
            await self.read()
        except StorageError as error:
            # The store may refuse the enqueue too, or this role may not read of strikes.
            logger.debug("the strikes cannot be read, so pods judge new jobs: %s", error)
            self._begin_anew()

    async def close(self) -> None:
        """Wait for a reading that is under way."""
        if self._timer is not None:
            self._timer.cancel()
        await self._readings.flush()

    def _begin_anew(self) -> None:
        # A timer, since a look at the clock would be two calls for each enqueue.
        if self._timer is not None:
            self._timer.cancel()
        loop, self.is_due = asyncio.get_running_loop(), False
        self._timer = loop.call_later(READ_EVERY.total_seconds(), self._age)

    def _age(self) -> None:
        self.is_due = True

    async def _read(self, callers: Sequence[None]) -> list[Judge]:
        known = Judge(await self._config.strikes())
        self._known = known
        self.are_asked = bool(known)
        self.judge = self._judged if known else None
        self._begin_anew()
        return [known] * len(callers)

    def _judged(self, job: NewJob) -> NewJob:
        known = self._known
        strike = None if known is None else known.verdict(job.kind, lambda: job.payload)
        return job if strike is None else structs.replace(job, struck=struck_by(strike))


def are_struck(jobs: Sequence[NewJob]) -> bool:
    """Return whether a strike means one of the jobs."""
    return any(job.struck is not None for job in jobs)


def with_strikes(jobs: Sequence[NewJob], outcomes: list[EnqueueOutcome]) -> list[EnqueueOutcome]:
    """Return the outcomes with the names of the strikes that mean the jobs."""
    if not are_struck(jobs):
        return outcomes
    return [
        outcome
        if job.struck is None or outcome.job_id != job.id
        else structs.replace(outcome, struck_by=name_of(job.struck.mark))
        for job, outcome in zip(jobs, outcomes, strict=True)
    ]
