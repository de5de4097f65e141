"""The run of one handler: how the run is stopped, and why."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import msgspec

from forge_jobs.errors import ForgeJobsError
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.signatures import decode_value, encode_value
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.letters import DEAD_LETTER_KIND, DeadLetter, read_dead_letter
from forge_jobs.model.payloads import encode_json
from forge_jobs.model.queues import QueueState
from forge_jobs.model.transitions import OCCURRENCE, Occurrence, Transition, occurrence_of
from forge_jobs.outages import Pauses
from forge_jobs.privacy.encryption import Part, decrypted, is_encrypted
from forge_jobs.privacy.secrets import ORIGIN, SECRETS, paths_in, secret_texts
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.threads import ThreadEnd

logger = reporter(__name__)

_SHORTEST_PATIENCE, _LONGEST_PAUSE = 0.05, 10.0
_REPORTED_REPEAT = 2
_OVERRUN_AFTER = 1.0
"""Seconds for a handler to notice that the time is up, and to clean up."""


class StopReason(StrEnum):
    """Why a run is stopped from outside."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    """Also for scale-down and self-fencing. The attempt is handed back."""
    LOST = "lost"
    """The claim is lost: the store refuses whatever the handler returns."""


class Run:
    """A claimed job in the hands of a worker.

    Belongs to the event loop's thread, except ``stop_reason``, which any thread may read.

    :param started_at: ``Clock.elapsed`` when the worker took the job
    :param patience: seconds between two cancellations of the handler
    :param queue_state: the queue as known at the start of the run
    :param lasts: called once, when the handler still runs a while after the timeout
    """

    __slots__ = (
        "_deadline",
        "_lasts",
        "_loop",
        "_patience",
        "_repeat",
        "_repeats",
        "_task",
        "_waits",
        "context",
        "cut_hooks",
        "decided",
        "ended",
        "handler",
        "in_thread",
        "job",
        "kill",
        "may_be_settled",
        "overran",
        "parents",
        "pod_stops",
        "queue_state",
        "started_at",
        "stop_reason",
        "thread_end",
        "worker_id",
    )

    def __init__(
        self,
        job: ClaimedJob,
        handler: Handler[..., Any],
        worker_id: str,
        started_at: float,
        loop: asyncio.AbstractEventLoop,
        *,
        patience: float,
        queue_state: QueueState | None = None,
        lasts: Callable[["Run"], None] | None = None,
    ) -> None:
        self.job = job
        self.handler = handler
        self.worker_id = worker_id
        self.started_at = started_at
        self.queue_state = queue_state
        self.stop_reason: StopReason | None = None
        self.in_thread = False
        """A thread runs the handler, and the thread cannot be stopped."""
        self.kill: Callable[[], None] | None = None
        """Kills the process that runs the handler, where the handler has one."""
        self.ended = False
        self.context: Any = None
        """The JobContext of the run, once there is one."""
        self.cut_hooks: Callable[[], None] | None = None
        """Cancels the hooks while they run, after the end of the handler."""
        self.decided: Transition | None = None
        """Where the job goes, as hooks have heard. None: not decided yet."""
        self.may_be_settled = False
        """The handler ends the job in a transaction of the program. When the claim is gone, that
        transaction has most likely committed."""
        self.pod_stops = False
        """The pod drains. A cancellation without a stop reason then comes from the program."""
        self.thread_end: ThreadEnd | None = None
        """The outcome of the thread that runs the handler."""
        self.parents: Collection[str] = ()
        """Jobs whose results the handler was given as those of its parents."""
        self.overran = False
        """The timeout passed before the handler ended, and the overrun is recorded."""
        self._loop = loop
        self._lasts = lasts
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._repeat: asyncio.TimerHandle | None = None
        self._repeats = 0
        self._waits: set[asyncio.Task[Any]] = set()

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Return the task that runs the handler. None while a thread or process does."""
        return self._task

    @property
    def patience(self) -> float:
        """Return the seconds between two cancellations of the handler."""
        return self._patience

    @property
    def thread_goes_on(self) -> bool:
        """Return whether a thread still runs the handler with no task waiting for the thread."""
        return self.thread_end is not None and self.thread_end.cancelled()

    def payload(self) -> str:
        """Return the payload as the caller gave it.

        :raises KeyMissing: the pod lacks the key of the payload
        :raises DecryptionFailed: the payload was changed, or is another job's
        """
        job = self.job
        if not is_encrypted(job.payload):
            return job.payload
        return self._decrypted(job.payload, Part.PAYLOAD, self._metadata().get(ORIGIN, ""))

    def dead_letter(self) -> DeadLetter | None:
        """Return the letter that the job is, None for any other job.

        :raises KeyMissing: the pod lacks the key of the payload
        :raises DecryptionFailed: the payload was changed
        """
        if self.job.kind != DEAD_LETTER_KIND:
            return None
        return read_dead_letter(self._metadata(), self.payload())

    def _metadata(self) -> dict[str, str]:
        return msgspec.json.decode(self.job.metadata, type=dict[str, str])

    def encode_result(self, value: object) -> str | None:
        """Return what the handler returned as the text to store.

        :raises InvalidInput: the value cannot be stored
        """
        text = self.handler.encode_result(value)
        return None if text is None else self._encrypted(text, Part.RESULT)

    def next_occurrence(self, payload: Mapping[str, Any] | None) -> Occurrence:
        """Return what the job carries into the next occurrence.

        :param payload: the arguments by name. None: those of this run
        :raises InvalidInput: the arguments do not fit the handler. Names the field
        """
        job, signature = self.job, self.handler.signature
        text = self.payload() if payload is None else signature.encode((), payload)
        metadata = self._metadata()
        metadata[OCCURRENCE] = str(occurrence_of(metadata) + 1)
        return Occurrence(
            # Also an old text anew: a rotated key goes out of use.
            payload=self._encrypted(text, Part.PAYLOAD),
            metadata=encode_json("metadata", metadata),
            max_attempts=job.max_attempts,
            timeout=job.timeout,
            keep_result=job.keep_result,
            trace=job.trace,
        )

    def encode_checkpoint(self, value: object) -> str:
        """Return a checkpoint as the text to store.

        :raises InvalidInput: the value cannot be stored
        """
        return self._encrypted(encode_value("checkpoint", value), Part.CHECKPOINT)

    def decode_checkpoint(self, text: str, kind: Any) -> Any:
        """Return a stored checkpoint as a value of type ``kind``.

        :raises UndecodablePayload: the checkpoint is not of that type
        :raises KeyMissing: the pod lacks the key of the checkpoint
        """
        return decode_value("checkpoint", self._decrypted(text, Part.CHECKPOINT), kind)

    def _encrypted(self, text: str, part: Part) -> str:
        encryption, job = self.handler.options.encryption, self.job
        if encryption is None:
            return text
        return encryption.encrypt(text, job_id=job.claim.job_id, kind=job.kind, part=part)

    def _decrypted(self, text: str, part: Part, origin: str = "") -> str:
        return decrypted(
            self.handler.options.encryption,
            text,
            job_id=self.job.claim.job_id,
            kind=self.job.kind,
            part=part,
            origin=origin,
        )

    @property
    def has_secrets(self) -> bool:
        """Return whether the payload may have secrets, which no text may hold."""
        return bool(self.handler.options.secrets) or SECRETS in self._marks()

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets of the payload, for texts that must not hold them."""
        if not self.has_secrets:
            return ()
        try:
            return secret_texts(self.payload(), paths_in(self._marks()))
        except ForgeJobsError:
            return ()

    def _marks(self) -> Mapping[str, str]:
        """Return where the secrets are. A letter has those of the dead job's kind."""
        if self.job.kind == DEAD_LETTER_KIND:
            return self._metadata()
        secrets = self.handler.options.secrets
        return {SECRETS: secrets} if secrets else {}

    def begin(self, task: asyncio.Task[None] | None) -> None:
        """Note that the handler starts now, and start the timeout.

        :param task: the task to cancel when the run is stopped. None for a thread, which only sees
            :attr:`stop_reason`
        """
        self._task = task
        self.in_thread = task is None
        if self.job.timeout is not None:
            seconds = self.job.timeout.total_seconds()
            self._deadline = self._loop.call_later(seconds, self._time_is_up)
        if self.stop_reason is not None:
            self._cancel()

    def enter_thread(self) -> None:
        """Note that a thread works for the run from now on: a stop cancels nothing."""
        self._task = None
        self.in_thread = True
        if self._repeat is not None:
            self._repeat.cancel()

    def leave_thread(self, task: asyncio.Task[None] | None) -> None:
        """Note that ``task`` goes on where a thread has ended.

        A run that was stopped meanwhile may clean up in peace, and is cancelled after the patience.
        """
        self._task = task
        self.in_thread = False
        if self.stop_reason is not None and not self.ended:
            until = self._loop.time() + max(self._patience, _SHORTEST_PATIENCE)
            self._repeat = self._loop.call_at(until, self._cancel_again)

    def finish(self) -> None:
        """Note that the handler has ended. From now on nothing is cancelled."""
        self.ended = True
        self._task = None
        if self._deadline is not None:
            self._deadline.cancel()
        if self._repeat is not None:
            self._repeat.cancel()

    def stop(self, reason: StopReason, patience: float | None = None) -> None:
        """Ask the handler to end. The first reason stands, except that a lost claim beats all.

        The handler is cancelled once, whatever the number of reasons. A second cancellation would
        cut the clean-up short, and comes only after the patience. Hooks behind the handler are
        cancelled too, except by a cancel, which comes too late.

        :param patience: seconds before the second cancellation, where fewer than the run has
        """
        if self.ended:
            if self.cut_hooks is not None and reason is not StopReason.CANCEL:
                self.cut_hooks()
            return
        if patience is not None:
            self._patience = min(self._patience, patience)
        known = self.stop_reason
        if known is None or reason is StopReason.LOST:
            self.stop_reason = reason
        for waiting in self._waits:
            waiting.cancel()
        if known is None:
            self._cancel()
        elif self._repeat is not None:
            at = self._loop.time() + max(self._patience, _SHORTEST_PATIENCE)
            if at < self._repeat.when():
                self._repeat.cancel()
                self._repeat = self._loop.call_at(at, self._cancel_again)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Cancel the current task when the run is stopped within the block.

        The thread of the handler waits for that task.

        :raises CancelledError: the run is being stopped already
        """
        task = asyncio.current_task()
        assert task is not None
        if self.stop_reason is not None:
            raise asyncio.CancelledError
        self._waits.add(task)
        try:
            yield
        finally:
            self._waits.discard(task)

    def extend(self, seconds: float) -> None:
        """Move the end of the job's time. No effect without a timeout or after a stop."""
        if self._deadline is None or self.stop_reason is not None or self.ended:
            return
        when = self._deadline.when() + seconds
        self._deadline.cancel()
        self._deadline = self._loop.call_at(when, self._time_is_up)

    def _time_is_up(self) -> None:
        self.stop(StopReason.TIMEOUT)
        if self._lasts is not None and self.stop_reason is StopReason.TIMEOUT and not self.ended:
            self._deadline = self._loop.call_later(_OVERRUN_AFTER, self._lasts, self)

    def _cancel(self) -> None:
        """Cancel the handler's task, and again after growing pauses while the handler goes on."""
        if self._task is None:
            return
        self._task.cancel()
        if self._repeat is not None:
            self._repeat.cancel()
        patience = max(self._patience, _SHORTEST_PATIENCE)
        pauses = Pauses(patience, max(patience, _LONGEST_PAUSE), jitter=0)
        self._repeat = self._loop.call_later(pauses.after(self._repeats + 1), self._cancel_again)

    def _cancel_again(self) -> None:
        self._repeats += 1
        if self._repeats == _REPORTED_REPEAT:
            logger.warning(
                "job %s (%s) goes on although it was cancelled (%s): its handler swallows "
                "CancelledError, which the handler must let pass",
                self.job.claim.job_id,
                self.job.kind,
                self.stop_reason,
                extra={
                    "job_id": self.job.claim.job_id,
                    "kind": self.job.kind,
                    "queue": self.job.claim.queue,
                },
            )
        self._cancel()
