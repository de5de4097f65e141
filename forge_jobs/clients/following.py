"""Following the log lines of a job while the job goes on."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta

from forge_jobs.clients.watching import LOOK_EVERY_S
from forge_jobs.errors import NotFound, StorageClosed, Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.progress import JobState, LogPage
from forge_jobs.outages import Outage
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import JobStore
from forge_jobs.storage.wakeups import until_set

logger = reporter(__name__)

AT_ONCE = 1_000
"""Lines of one read. A store takes no more."""


class LogFollower(AsyncIterator[LogPage]):
    """The lines of a job that a reader has not seen yet. See ``JobClient.follow_log``.

    :param attempt: whose lines. None: the attempt that ran last, and those that follow
    """

    def __init__(self, jobs: JobStore, job_id: JobId, attempt: int | None = None) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._wanted = attempt
        self._attempt = attempt
        self._found: deque[LogPage] = deque()
        self._shown: dict[int, int] = {}
        """The number of the last line that was seen, per attempt."""
        self.has_looked = False
        """True after the first look. Attempts that have lines only later are new."""
        self._is_over = False
        self._outage = Outage()

    async def __anext__(self) -> LogPage:
        page = await self.next_page()
        if page is None:
            raise StopAsyncIteration
        return page

    async def next_page(self) -> LogPage | None:
        """Wait for new lines, and return them. None: no further line can come.

        :raises NotFound: there is no such job, or the job was removed meanwhile
        """
        while not (self._found or self._is_over):
            try:
                # The state is read first: the last lines are stored before the end is.
                state = await self._state()
                await self._read()
            except StorageClosed:
                raise
            except Unavailable as error:
                if self._outage.is_new():
                    logger.warning(
                        "the log of job %s is read on when the store answers: %s",
                        self._job_id,
                        error,
                    )
                await until_set(asyncio.Event(), LOOK_EVERY_S)
                continue
            self._outage.is_over()
            has_gone_on = self._wanted is not None and state.attempt > self._wanted
            self._is_over = state.is_final or has_gone_on
            if not (self._found or self._is_over):
                await self._pause(state.queue)
        return self._found.popleft() if self._found else None

    async def _state(self) -> JobState:
        state = (await self._jobs.states([self._job_id])).get(self._job_id)
        if state is None:
            text = f"there is no job {self._job_id}; it never was, or was removed"
            if self.has_looked:
                text = f"job {self._job_id} was removed while its log was followed"
            raise NotFound(text)
        return state

    async def _read(self) -> None:
        """Read what is new of this attempt, and of those that ran after."""
        while True:
            after = 0 if self._attempt is None else self._shown.get(self._attempt, 0)
            page = await self._jobs.job_log(
                self._job_id, attempt=self._attempt, after=after, limit=AT_ONCE
            )
            if self._attempt is None:
                has_looked, self.has_looked = self.has_looked, True
                if not page.attempts:
                    return
                self._attempt = page.attempts[0] if has_looked else page.attempt
                if self._attempt != page.attempt:
                    continue
            if page.lines:
                self._found.append(page)
                self._shown[page.attempt] = page.lines[-1].number
            if len(page.lines) == AT_ONCE:
                continue
            later = () if self._wanted is not None else _after(self._attempt, page.attempts)
            if not later:
                return
            self._attempt = later[0]

    async def _pause(self, queue: str) -> None:
        """Wait for a change in the queue, or until it is time to look."""
        queues, longest = frozenset({queue}), timedelta(seconds=LOOK_EVERY_S)
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._jobs.wait_for_changes(queues, longest, self)
        except TimeoutError:
            return
        except Unavailable:
            await until_set(asyncio.Event(), LOOK_EVERY_S)


def _after(attempt: int, attempts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the attempts that ran later than this one. An attempt that is not kept was first."""
    return attempts[attempts.index(attempt) + 1 :] if attempt in attempts else attempts
