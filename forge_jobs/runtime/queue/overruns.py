"""Handlers that go on past the timeout of their job. Nothing stops them, so people must know."""

from datetime import timedelta

from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ErrorRecord
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.shared.events import EventBuffer

logger = reporter(__name__)


class Overruns:
    """Reports each overrun once.

    :ivar count: overruns of this pod since the start
    """

    def __init__(self, events: EventBuffer) -> None:
        self.count = 0
        self._events = events

    def lasts(self, run: Run) -> None:
        """Warn of a handler that still runs after the timeout."""
        job = run.job
        why = (
            "a plain function cannot be stopped; it sees ctx.cancel_requested"
            if run.in_thread
            else "it swallows CancelledError, or its clean-up takes long"
        )
        # The kind is part of the message, because error trackers group by the message.
        kind = job.kind.replace("%", "%%")
        message = f"{kind} runs past its timeout of %s: %s (job %s, attempt %s)"
        logger.warning(
            message,
            job.timeout,
            why,
            job.claim.job_id,
            job.attempt,
            extra={"job_id": job.claim.job_id, "kind": job.kind, "queue": job.claim.queue},
        )
        self._note(run)

    def ended_well(self, run: Run, seconds: float, host_id: HostId) -> ErrorRecord:
        """Return the record to keep with a success that came after the timeout."""
        if not run.overran:
            self._note(run)
        took = timedelta(seconds=round(seconds, 3))
        return ErrorRecord(
            attempt=run.job.attempt,
            cause=Cause.TIMED_OUT,
            type="Overran",
            message=f"the handler went on past its timeout of {run.job.timeout} and ended with "
            f"success after {took}, which counts",
            host_id=host_id,
        )

    def _note(self, run: Run) -> None:
        run.overran = True
        self.count += 1
        claim = run.job.claim
        detail = f"past its timeout of {run.job.timeout}"
        self._events.record(
            EventKind.OVERRAN, queue=claim.queue, job_id=claim.job_id, detail=detail
        )
