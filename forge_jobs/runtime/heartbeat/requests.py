"""Requests to this pod: heard by the heartbeat's thread, done once each, and answered."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple, Protocol

from forge_jobs import stop_points
from forge_jobs.clock import Clock
from forge_jobs.errors import OF_VALUES
from forge_jobs.model.pod_requests import PodRequest, PodVerb
from forge_jobs.model.processes import PodLease
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import ProcStore

logger = reporter(__name__)

_REMEMBERED = 64
"""So many ids are known as done. A pod is asked for eight things in five seconds at most."""

_SLOW = timedelta(seconds=1)
"""Requests of a call that took so long are heard once more with the next beat."""

Reply = Callable[[str, bool], None]
"""Called with the answer, and whether the pod did what was asked."""


class PodRequests(Protocol):
    """Does what a pod is asked for."""

    def asked(self, request: PodRequest, reply: Reply) -> None:
        """Act and reply, once. Called on the event loop of the handlers."""
        ...

    def stacks(self) -> str:
        """Say where jobs and threads stand. Called in the heartbeat's thread, also while the event
        loop is blocked."""
        ...


class _Answer(NamedTuple):
    lease: PodLease
    request: PodRequest
    text: str
    done: bool


class RequestDesk:
    """Hears requests, has each done once, and sends each answer until the store has taken it.

    Lives in the heartbeat's thread. No failure here is one of a beat: the next beat tries again.

    :param home: the event loop of the handlers
    :param wake: makes the heartbeat send the answer soon. Called on ``home``
    """

    def __init__(
        self,
        requests: PodRequests,
        home: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._home = home
        self._wake = wake
        self._done: deque[str] = deque(maxlen=_REMEMBERED)
        self._answers: deque[_Answer] = deque()
        self._shown: deque[_Answer] = deque()
        """Answers that change nothing, and need no beat before they are read."""
        self._ready = 0

    def begin(self) -> None:
        """Note which answers are there at the begin of a beat.

        Later ones wait for the next beat: the store is to know what they say before they are read.
        """
        self._ready = len(self._answers)

    async def serve(self, procs: ProcStore, lease: PodLease, *, is_asked: bool) -> None:
        """Hear what waits, and send what was answered at the last :meth:`begin`."""
        try:
            if is_asked:
                await self._hear(procs, lease)
            await self._send_all(procs, self._shown, len(self._shown))
            await self._send_all(procs, self._answers, self._ready)
        except Exception as error:  # beats must go on
            logger.warning(
                "operators' requests to this pod wait for the next heartbeat: %s: %s",
                type(error).__name__,
                error,
            )

    async def _hear(self, procs: ProcStore, lease: PodLease) -> None:
        asked_at = self._clock.elapsed()
        heard = await procs.hear_requests(lease)
        took = timedelta(seconds=self._clock.elapsed() - asked_at)
        for request in heard:
            # Late, an operator may have read already that this pod never heard of the request.
            is_in_time = request.heard_at is not None and request.heard_at + took < request.until
            if is_in_time and took < _SLOW and request.id not in self._done:
                self._done.append(request.id)
                self._begin(lease, request)

    async def _send_all(self, procs: ProcStore, answers: deque[_Answer], count: int) -> None:
        for _ in range(count):
            await self._send(procs, answers[0])
            answers.popleft()

    async def _send(self, procs: ProcStore, answer: _Answer) -> None:
        if stop_points.ARMED:
            await stop_points.reach("requests:read")
        lease, request, text, done = answer
        try:
            await procs.answer_request(lease, request.id, text, done=done)
        except OF_VALUES as error:  # no repeat would do better
            logger.warning(
                "the store refuses the answer to request %s, so the operator sees none: %s",
                request.id,
                error,
            )

    def _begin(self, lease: PodLease, request: PodRequest) -> None:
        logger.info(
            "asked to %s by %s (request %s)",
            "show stacks" if request.verb is PodVerb.STACKS else f"{request.verb}",
            request.asked_by or "a caller without a name",
            request.id,
        )
        if request.verb is PodVerb.STACKS:
            # Here and now: the event loop may be what is looked for.
            self._shown.append(_Answer(lease, request, self._requests.stacks(), True))
            return

        def reply(text: str, done: bool) -> None:
            self._answers.append(_Answer(lease, request, text, done))
            self._wake()

        try:
            self._home.call_soon_threadsafe(self._requests.asked, request, reply)
        except RuntimeError:  # the event loop is closed
            self._shown.append(_Answer(lease, request, "The pod is ending.", False))
