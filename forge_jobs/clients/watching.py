"""Following jobs while they go on: one look at the store for all watches of one client."""

import asyncio
import contextvars
import weakref
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType

from forge_jobs.errors import (
    NotFound,
    PartlyUnavailable,
    SlowWatcher,
    StorageClosed,
    StorageError,
    Unavailable,
)
from forge_jobs.home_loop import next_turn
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.model.progress import JobState
from forge_jobs.outages import Outage
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import JobStore
from forge_jobs.storage.wakeups import until_set

logger = reporter(__name__)

LOOK_EVERY_S = 1.0
"""Changes without a wake-up are seen at the latest after so many seconds."""

APART_S = 0.05
"""Changes that come faster are merged."""

NEWEST = 500
"""Jobs of a watched queue that are followed, newest first, and so many that run."""

MOST_WAITING = 2_000
"""States that may wait for the reader of a watch."""

_Lines = Mapping[str, Sequence[JobSummary]]


class _Ended:
    """Jobs of a watched queue that have ended. Their states need no read.

    An end counts as known while the list shows the same end: a job that has ended may be requeued,
    and may have ended once more before the next look.
    """

    def __init__(self) -> None:
        self._listed: dict[JobId, object] = {}
        self._known: dict[JobId, object] = {}
        self._shown: dict[JobId, object] = {}

    def take_all(self, lines: Sequence[JobSummary]) -> None:
        """Count as known what has ended before the watch."""
        self._known = {line.id: _end_of(line) for line in lines if line.status in TERMINAL}

    def others(self, lines: Sequence[JobSummary]) -> list[JobId]:
        """Return the jobs whose states may have changed, and forget jobs that are not listed.

        A job that is listed twice counts as running: the running jobs are last.
        """
        self._listed = {line.id: _end_of(line) for line in lines}
        for gone in self._known.keys() - self._listed.keys():
            self.forget(gone)
        return [
            job_id
            for job_id, end in self._listed.items()
            if end is None or self._known.get(job_id) != end
        ]

    def was_shown(self, state: JobState) -> bool:
        """Return whether this end was shown before. From now on the end is known.

        The list is older than the state. An end that the list did not show is read once more.
        """
        end = (state.status, state.cause, state.attempt, state.token)
        is_same = self._shown.get(state.id) == end
        self._shown[state.id] = end
        self._known[state.id] = self._listed.get(state.id)
        return is_same

    def forget(self, job_id: JobId) -> None:
        """The job goes on, or is gone."""
        self._known.pop(job_id, None)
        self._shown.pop(job_id, None)


def _end_of(line: JobSummary) -> object:
    """Return what tells this end of a job from others. None: the job has not ended."""
    return (line.status, line.attempt, line.finished_at) if line.status in TERMINAL else None


class Watch(AsyncIterator[JobState]):
    """The states of a job, or of the jobs of a queue, as they change. See ``JobClient.watch``."""

    def __init__(self, *, job_id: JobId | None = None, queue: str | None = None) -> None:
        self.job_id = job_id
        self.queue = queue
        self.listens_to = queue
        """The queue whose changes concern this watch. None: not known yet."""
        self._waiting: dict[JobId, JobState] = {}
        self._last: dict[JobId, JobState] = {}
        self._ended = _Ended()
        self._has_looked = False
        self._is_over = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    async def __anext__(self) -> JobState:
        state = await self.next_state()
        if state is None:
            raise StopAsyncIteration
        return state

    async def next_state(self) -> JobState | None:
        """Return the next state. None: the watch has ended."""
        while True:
            if self._waiting:
                return self._waiting.pop(next(iter(self._waiting)))
            if self._error is not None:
                raise self._error
            if self._is_over:
                return None
            self._news.clear()
            await self._news.wait()

    async def aclose(self) -> None:
        """End the watch."""
        self._waiting.clear()
        self._end()

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def is_over(self) -> bool:
        """Return whether no further state is wanted."""
        return self._is_over

    def wanted(self, lines: _Lines) -> Iterable[JobId]:
        """Return the jobs whose states this watch wants now.

        :param lines: of the watched queues, see :class:`Watches`
        """
        if self.job_id is not None:
            return (self.job_id,)
        found = lines[self.queue or ""]
        if not self._has_looked:
            self._ended.take_all(found)
        return dict.fromkeys((*self._last, *self._ended.others(found)))

    def saw(self, states: Mapping[JobId, JobState], wanted: Iterable[JobId]) -> None:
        """Take the states of the jobs that were wanted, as far as the store has answered."""
        self._has_looked = True
        for job_id in wanted:
            state = states.get(job_id)
            if state is not None:
                self._put(state)
            elif self.job_id is None:
                self._last.pop(job_id, None)
            else:
                was_there = job_id in self._last
                text = f"job {job_id} was removed while it was watched"
                if not was_there:
                    text = f"there is no job {job_id}; it never was, or was removed"
                self.fail(NotFound(text))

    def fail(self, error: Exception) -> None:
        """End the watch with an error, once the states before are read."""
        if not self._is_over:
            self._error = error
            self._end()

    def _put(self, state: JobState) -> None:
        if self._last.get(state.id) == state or (state.is_final and self._ended.was_shown(state)):
            return
        self.listens_to = state.queue
        self._last[state.id] = state
        # The newest state of a job takes the place of one that was not read.
        self._waiting[state.id] = state
        if state.is_final:
            del self._last[state.id]
            if self.job_id is not None:
                self._end()
        else:
            self._ended.forget(state.id)
        if len(self._waiting) > MOST_WAITING:
            self._waiting.clear()
            self.fail(
                SlowWatcher(
                    f"more than {MOST_WAITING} changes of queue {self.queue} waited to be read; "
                    "watch again, and read faster or watch fewer jobs"
                )
            )
        self._news.set()

    def _end(self) -> None:
        self._is_over = True
        self._news.set()


class Watches:
    """The open watches of one client, with one task that looks for all of them.

    A look is one call for the states of all jobs, and two more for each watched queue. Wake-ups and
    new watches make the task look at once, else the task looks once a second. A watch that the
    program has dropped is forgotten.

    Of a store with several parts a silent part delays its own jobs only: a queue that does not
    answer is left out of the look, as a whole, and its watches go on when the queue answers again.

    Belongs to the event loop of its first use.

    :param is_parted: see ``Storage``
    """

    def __init__(self, jobs: JobStore, *, is_parted: bool = False) -> None:
        self._jobs = jobs
        self._is_parted = is_parted
        self._open: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage()

    def start(self, watch: Watch) -> Watch:
        """Begin to look for a watch."""
        self._open.add(watch)
        self._news.set()
        if self._task is None:
            # A context copied from the first caller would be that caller's.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), context=contextvars.Context())
        return watch

    def end(self, error: StorageError) -> None:
        """End all watches with this error."""
        for watch in list(self._open):
            watch.fail(error)
        self._open.clear()
        self._news.set()

    async def _run(self) -> None:
        try:
            if self._task is None:
                await next_turn()
            while self._open:
                self._news.clear()
                await self._look([watch for watch in self._open if not watch.is_over])
                for watch in [watch for watch in self._open if watch.is_over]:
                    self._open.discard(watch)
                    del watch
                if self._open:
                    await self._pause()
        finally:
            self._task = None
            self.end(Unavailable("the event loop ended while jobs were watched"))

    async def _look(self, watches: Sequence[Watch]) -> None:
        try:
            lines, silent = await self._all_lines(watches)
            heard = [each for each in watches if each.queue is None or each.queue in lines]
            wanted = {watch: [*watch.wanted(lines)] for watch in heard}
            ids = dict.fromkeys(job_id for found in wanted.values() for job_id in found)
            states, unknown = await self._states([*ids])
        except StorageClosed as error:
            self._fail(watches, error)
        except Unavailable as error:
            self._log_away(error)
        except Exception as error:
            self._fail(watches, error)
        else:
            if silent is not None:
                self._log_away(silent)
            elif self._outage.is_over():
                logger.info("watched jobs can be read again")
            for watch, found in wanted.items():
                watch.saw(states, [job_id for job_id in found if job_id not in unknown])

    def _fail(self, watches: Iterable[Watch], error: Exception) -> None:
        for watch in watches:
            watch.fail(error)

    def _log_away(self, error: Unavailable) -> None:
        if self._outage.is_new():
            logger.warning(
                "watched jobs cannot be read; the read is repeated until the store answers: %s",
                error,
            )

    async def _all_lines(self, watches: Iterable[Watch]) -> tuple[_Lines, Unavailable | None]:
        """Return the lines of the watched queues that answer, and an error of one that does not.

        :raises Unavailable: the store has one part, which does not answer
        """
        lines: dict[str, Sequence[JobSummary]] = {}
        silent: Unavailable | None = None
        for queue in {watch.queue for watch in watches if watch.queue is not None}:
            try:
                lines[queue] = await self._lines(queue)
            except Unavailable as error:
                if not self._is_parted:
                    raise
                silent = error
        return lines, silent

    async def _lines(self, queue: str) -> Sequence[JobSummary]:
        """Return the newest jobs of a queue and those that run.

        :raises Unavailable: the queue is silent. What came of its jobs would be a part, and jobs
            that are not listed would count as gone
        """
        running = JobFilter(queues=(queue,), statuses=(JobStatus.IN_PROGRESS,))
        lines: list[JobSummary] = []
        for which in (JobFilter(queues=(queue,)), running):
            page = await self._jobs.list(which, limit=NEWEST)
            if queue in page.silent:
                raise Unavailable(f"the server of queue {queue!r} does not answer")
            lines += page.jobs
        return lines

    async def _states(
        self, ids: Sequence[JobId]
    ) -> tuple[Mapping[JobId, JobState], Collection[str]]:
        """Return the states, and the jobs of which nothing is known."""
        if not ids:
            return {}, ()
        try:
            return await self._jobs.states(ids), ()
        except PartlyUnavailable as error:
            return error.found, error.unknown

    async def _pause(self) -> None:
        """Wait for a change, for a new watch, or until it is time to look."""
        queues = frozenset(watch.listens_to for watch in self._open if watch.listens_to)
        longest = timedelta(seconds=LOOK_EVERY_S)
        news = asyncio.ensure_future(self._news.wait())
        change = asyncio.ensure_future(self._jobs.wait_for_changes(queues, longest, self))
        waits: set[asyncio.Future[object]] = {news, change}  # type: ignore[arg-type]
        try:
            await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            if change.done() and change.exception() is not None:
                await asyncio.wait({news}, timeout=LOOK_EVERY_S)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        await until_set(asyncio.Event(), APART_S)
