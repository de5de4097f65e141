"""Handlers that go on when a process ends: threads, and coroutines that do not stop."""

import concurrent.futures.thread as pool
import queue
import sys
import threading
from collections.abc import Iterable
from types import FrameType

from forge_jobs.model.jobs import Claim
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.outbox import Outbox
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.shared.clean_texts import named

logger = reporter(__name__)

_ANYIO_WORKER = "anyio/_backends/_asyncio.py"


class DeferredEnds:
    """Holds the ends of handlers that a stop has interrupted, until no thread of them can run.

    A coroutine that waits for a thread (``asyncio.to_thread``, ``anyio.to_thread``) ends when
    cancelled, and the thread goes on. If another pod got the job then, the job would run twice at
    once. Python does not say which handler a thread works for, so all interrupted ends wait.
    """

    def __init__(self) -> None:
        self._outboxes: tuple[Outbox, ...] = ()

    def begin(self, outboxes: Iterable[Outbox]) -> None:
        """Keep back what is interrupted from here on."""
        self._outboxes = tuple(outboxes)
        for outbox in self._outboxes:
            outbox.defer_interrupted()

    def __bool__(self) -> bool:
        return any(outbox.deferred for outbox in self._outboxes)

    def let_go(self) -> None:
        """Store the ends as any others."""
        for outbox in self._outboxes:
            outbox.send_deferred()

    def claims(self) -> list[Claim]:
        """Return the claims of the held ends."""
        return [end.claim for outbox in self._outboxes for end in outbox.deferred or ()]

    def report(self, threads: Iterable[str]) -> None:
        """Log that these ends wait until the process ends, and why."""
        ids = [claim.job_id for claim in self.claims()]
        logger.error(
            "handlers were interrupted, but threads go on (%s). This process ends, and other pods "
            "get the jobs: %s",
            ", ".join(threads),
            named(ids),
            extra={"job_ids": ids},
        )


def kill_processes(runs: Iterable[Run]) -> bool:
    """Kill the processes of handlers that have not ended. Return whether there are any."""
    kills = [run.kill for run in runs if run.kill is not None]
    for kill in kills:
        kill()
    return bool(kills)


def report_stuck(stuck: Iterable[Run], *, process_ends: bool) -> None:
    """Log each handler that has not ended, and what happens to the claim."""
    for run in stuck:
        logger.error(
            "job %s (%s) has not ended: %s. %s",
            run.job.claim.job_id,
            run.job.kind,
            "a thread cannot be stopped"
            if run.in_thread
            else "the handler swallows CancelledError",
            "This process ends, and another pod gets the job"
            if process_ends
            else "This pod keeps the claim until the handler ends",
            extra={"job_id": run.job.claim.job_id, "kind": run.job.kind},
        )


def busy_threads() -> list[str]:
    """Return the names of the busy threads that keep the process from ending.

    Daemon threads are left out, and so are threads of a pool that wait for work.
    """
    frames = sys._current_frames()
    return [
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon
        and thread is not threading.main_thread()
        and thread.ident in frames
        and not _is_waiting_for_work(frames[thread.ident])
    ]


def _is_waiting_for_work(frame: FrameType) -> bool:
    if frame.f_code is pool._worker.__code__:
        return True
    at: FrameType | None = frame
    while at is not None and at.f_code.co_filename == threading.__file__:
        at = at.f_back
    if at is None or at.f_code is not queue.Queue.get.__code__ or at.f_back is None:
        return False
    return at.f_back.f_code.co_filename.endswith(_ANYIO_WORKER)
