"""Applies the answers of beats to the queues of a pod."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import Beat, ClaimState, PodLease
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.loop import QueueLoop
from forge_jobs.runtime.queue.services import PodServices

logger = reporter(__name__)

_NAMED = 5
"""Jobs of one beat that are named in the log. A lost reply may have brought hundreds."""


class BeatListener(Protocol):
    """Gets the answers of beats. Called on the event loop of the handlers."""

    def beat_arrived(self, beat: Beat, sent_at: float) -> None:
        """Handle an answer. ``sent_at`` is ``Clock.elapsed`` before the question."""
        ...

    def registered_again(self, lease: PodLease, at: float) -> None:
        """Handle a new lease without grants, which replaces the expired one."""
        ...

    def fenced(self) -> None:
        """Stop the handlers, because no beat has succeeded for too long."""
        ...


class BeatReceiver:
    """The event loop's side of the heartbeat.

    :param handover: wakes the hand-over loop
    :param letters: wakes the relay of letters
    """

    def __init__(
        self,
        services: PodServices,
        queues: Mapping[str, QueueLoop],
        handover: Callable[[], None],
        letters: Callable[[], None],
    ) -> None:
        self._services = services
        self._queues = queues
        self._handover = handover
        self._letters = letters
        self._fenced: set[str] = set()
        self._unknown: dict[Claim, int] = {}
        """Claims of this pod in the store -> the call that may still bring them (0: none)."""

    @property
    def is_fenced(self) -> bool:
        """Return whether all handlers were stopped after an outage that was too long."""
        return bool(self._fenced) and self._fenced == self._queues.keys()

    def beat_arrived(self, beat: Beat, sent_at: float) -> None:
        """Apply a beat: claims first, so that no run starts on outdated grants."""
        held = self._services.held
        for claim, state in beat.claims.items():
            # A claim that has ended since the beat was sent has no run to stop. A busy pod ends
            # hundreds meanwhile.
            if state is ClaimState.HELD or claim not in held:
                continue
            if queue := self._queues.get(claim.queue):
                queue.pool.stop_claim(claim, state)
        if beat.lease_held:
            self._apply(beat, sent_at)
        else:
            # The slots of this pod may belong to other pods by now, and so may the right to run.
            self._fence(self._queues, True)
            self._void_grants(self._services.clock.elapsed())
        self._reconcile(beat, sent_at)
        if beat.handovers:
            self._handover()
        if beat.letters:
            self._letters()
        for name, queue in self._queues.items():
            if name not in beat.silent:
                queue.store_is_back()

    def registered_again(self, lease: PodLease, at: float) -> None:
        """Go on under a new lease, with no slots until they are granted again."""
        self._services.lease = lease
        self._void_grants(at)
        self._judge()

    def fenced(self) -> None:
        """Stop the handlers. Their claims are ended or given back once the store answers."""
        fence, now = self._services.fence, self._services.clock.elapsed()
        self._fence([name for name in self._queues if fence.must_stop(now, name)], True)

    def _apply(self, beat: Beat, sent_at: float) -> None:
        self._judge()
        for name, queue in self._queues.items():
            if name in beat.admitted:
                queue.pool.void_grant(self._services.clock.elapsed())
            elif (news := beat.queues.get(name)) is not None:
                queue.pool.apply(news, sent_at)

    def _judge(self) -> None:
        """Fence the queues that are silent for too long, and no others."""
        fence, now = self._services.fence, self._services.clock.elapsed()
        silent = {name for name in self._queues if fence.must_stop(now, name)}
        self._fence(silent, True)
        self._fence(self._queues.keys() - silent, False)

    def _fence(self, queues: Iterable[str], fenced: bool) -> None:
        for name in queues:
            if fenced != (name in self._fenced):
                (self._fenced.add if fenced else self._fenced.discard)(name)
                self._queues[name].pool.fence(fenced)

    def _void_grants(self, at: float) -> None:
        for queue in self._queues.values():
            queue.pool.void_grant(at)

    def _reconcile(self, beat: Beat, sent_at: float) -> None:
        """Give back claims whose reply was lost.

        A claim unknown here may still be on the way in the reply to a call. The claim is given back
        when a second beat lists it too, and no call that could bring it is under way any more.
        """
        seen: dict[Claim, int] = {}
        given_back: list[Claim] = []
        services = self._services
        if services.given_up and beat.lease_held:
            listed = {*beat.unknown, *beat.claims}
            # A beat sent before a claim was given up may not list the claim.
            services.given_up = {
                claim: at
                for claim, at in services.given_up.items()
                if claim in listed or at >= sent_at or claim.queue in beat.silent
            }
        for claim in beat.unknown:
            queue = self._queues.get(claim.queue)
            if queue is None or claim in services.held or claim in services.given_up:
                continue
            carrier = self._unknown.get(claim)
            if carrier is None:
                seen[claim] = queue.calls_begun if queue.asked_at is not None else 0
            elif queue.asked_at is not None and carrier == queue.calls_begun:
                seen[claim] = carrier
            else:
                given_back.append(claim)
                queue.outbox.release([claim])
        self._unknown = seen
        _tell_of(given_back)


def _tell_of(given_back: Sequence[Claim]) -> None:
    for claim in given_back[:_NAMED]:
        logger.warning(
            "job %s is claimed for this pod, but the reply was lost; releasing the claim",
            claim.job_id,
            extra={"job_id": claim.job_id, "queue": claim.queue},
        )
    if (others := len(given_back) - _NAMED) > 0:
        logger.warning(
            "%d further jobs are claimed for this pod, but the reply was lost; releasing them",
            others,
        )
