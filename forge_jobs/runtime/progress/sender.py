"""Sends what the runs of a pod tell, in one call for all of them, about once a second."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from forge_jobs.clock import Clock, from_us
from forge_jobs.errors import CONCERNS_ALL
from forge_jobs.model.jobs import Claim, ClaimedJob
from forge_jobs.model.progress import ProgressNote
from forge_jobs.reports import reporter
from forge_jobs.runtime.progress.run_notes import RunNotes
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.storage.protocols import JobStore

logger = reporter(__name__)

APART_S = 0.8
"""Seconds between two calls, so that readers see within a second what a handler tells."""

_NOTES_AT_ONCE = 500
_BYTES_AT_ONCE = 1024 * 1024


class ProgressSender:
    """The notes of a pod's runs on the way to the store.

    :meth:`send_once` sends what running handlers tell. The last words of a run are sent by
    :meth:`settle`, before the end of the run is stored. Runs that tell nothing are not known here.

    :param clock: shows the store's time
    :ivar wakeup: wakes the loop that calls :meth:`send_once`
    """

    def __init__(self, jobs: JobStore, clock: Clock) -> None:
        self.wakeup = Wakeup()
        self._jobs = jobs
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._sending = asyncio.Lock()
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.waiting: dict[Claim, RunNotes] = {}
        """The runs with something to store."""

    def open(self, job: ClaimedJob, secrets: Sequence[str]) -> RunNotes:
        """Return where a run puts progress and lines."""
        return RunNotes(job, self._changed, secrets)

    def now(self) -> datetime:
        """Return the store's time. Callable from any thread."""
        return from_us(self._clock.time_us())

    async def send_once(self) -> None:
        """Store what waits. No call when nothing does.

        :raises StorageError: the store did not take the notes, which wait for the next call
        """
        if not self.waiting:
            return
        if self._loop.time() < self._next_at:
            # A timer of uvloop rings up to half a millisecond before its time.
            self._wake_later()
            return
        try:
            await self._send(self.waiting)
        finally:
            self._next_at = self._loop.time() + APART_S
            if self.waiting:
                self._wake_later()

    async def settle(self, claims: Iterable[Claim], gives_up: Callable[[Exception], bool]) -> None:
        """Store the last words of ended runs.

        :param gives_up: of an error: whether the ends must not wait for the notes any longer. The
            notes are dropped then
        """
        ended = [claim for claim in claims if claim in self.waiting]
        if not ended:
            return
        try:
            await self._send(ended)
        except Exception as error:
            if not gives_up(error):
                raise
            logger.warning(
                "the store refuses the last progress and log lines of %d jobs, which are dropped: "
                "%s: %s",
                len(ended),
                type(error).__qualname__,
                error,
            )
            for claim in ended:
                self.forget(claim)

    def forget(self, claim: Claim) -> None:
        """Drop the notes of a run whose claim is lost."""
        notes = self.waiting.pop(claim, None)
        if notes is not None:
            notes.end()

    def _changed(self, notes: RunNotes) -> None:
        if threading.get_ident() == self._thread_id:
            self._put(notes)
        else:
            try:
                self._loop.call_soon_threadsafe(self._put, notes)
            except RuntimeError:  # the event loop has ended, and with it the pod
                notes.end()

    def _put(self, notes: RunNotes) -> None:
        self.waiting[notes.claim] = notes
        self._wake_later()

    def _wake_later(self) -> None:
        if self._timer is None:
            # At once after a time of rest: the first progress is seen without delay.
            at = max(self._next_at, self._loop.time())
            self._timer = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.wakeup.wake()

    async def _send(self, claims: Iterable[Claim]) -> None:
        async with self._sending:
            for part in _parts([self.waiting[claim] for claim in claims if claim in self.waiting]):
                await self._store(part)

    async def _store(self, part: Sequence[RunNotes]) -> None:
        notes = [each.note() for each in part]
        try:
            answers = await self._jobs.note_progress(notes)
        except CONCERNS_ALL:
            raise
        except Exception as error:
            if len(part) > 1:
                for each in part:
                    await self._store([each])
                return
            logger.warning(
                "the store refuses progress and log lines of job %s, which are dropped: %s: %s",
                part[0].claim.job_id,
                type(error).__qualname__,
                error,
            )
            answers = [False]
        for each, note, answer in zip(part, notes, answers, strict=True):
            self._answered(each, note, answer)
        self._jobs.announce_changes({each.claim.queue for each in part})

    def _answered(self, notes: RunNotes, note: ProgressNote, answer: bool | None) -> None:
        if answer is None:
            return
        if not answer:
            self.forget(notes.claim)
        elif not notes.stored(note):
            self.waiting.pop(notes.claim, None)


def _parts(waiting: Sequence[RunNotes]) -> Iterator[list[RunNotes]]:
    """Split what waits into calls of bounded size."""
    rest = list(waiting)
    while rest:
        sizes = itertools.accumulate(each.size() for each in rest[:_NOTES_AT_ONCE])
        fit = max(1, sum(size <= _BYTES_AT_ONCE for size in sizes))
        yield rest[:fit]
        rest = rest[fit:]
