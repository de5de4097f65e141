"""Hands what a beat brought to those it concerns."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import Beat, ClaimState, PodLease
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.exchange import ExchangeLane
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.supervisor import Supervisor

logger = reporter(__name__)


class BeatListener(Protocol):
    """Who is told what the beats bring; called on the event loop of the handlers."""

    def beat_arrived(self, beat: Beat, sent_at: float) -> None:
        """An answer; ``sent_at`` is ``Clock.elapsed`` before the question."""
        ...

    def registered_again(self, lease: PodLease, at: float) -> None:
        """The old lease had run out; this one replaces it, without grants."""
        ...

    def fenced(self) -> None:
        """The pod could not beat for too long: stop the handlers."""
        ...


class BeatReceiver:
    """The event loop's side of the heartbeat.

    :param handover: rings the hand-over loop
    """

    def __init__(
        self,
        services: PodServices,
        supervisors: Mapping[str, Supervisor],
        handover: Callable[[], None],
    ) -> None:
        self._services = services
        self._supervisors = supervisors
        self._handover = handover
        self._fenced: set[str] = set()
        self._unknown: dict[Claim, int] = {}
        """Claims the store says are ours -> the call that may still bring them (0: none)."""

    @property
    def is_fenced(self) -> bool:
        """All handlers were stopped because the store could not be reached for too long."""
        return bool(self._fenced) and self._fenced == self._supervisors.keys()

    def beat_arrived(self, beat: Beat, sent_at: float) -> None:
        """Pass a beat on: claims first, so that nothing new starts on outdated news."""
        held = self._services.held
        for claim, state in beat.claims.items():
            # Of those that have ended since the beat was sent there is nothing to stop, and a busy
            # pod ends hundreds meanwhile.
            if state is ClaimState.HELD or claim not in held:
                continue
            if supervisor := self._supervisors.get(claim.queue):
                supervisor.claim_news(claim, state)
        if beat.lease_held:
            self._apply(beat, sent_at)
        else:
            # The slots of this pod may be others' by now, and with them the right to run.
            self._fence(self._supervisors, True)
            self._void_grants(self._services.clock.elapsed())
        self._reconcile(beat, sent_at)
        if beat.handovers:
            self._handover()
        for queue, supervisor in self._supervisors.items():
            if queue not in beat.silent:
                supervisor.lane.store_is_back()

    def registered_again(self, lease: PodLease, at: float) -> None:
        """Go on under a new lease, with no slots until they are granted again."""
        self._services.lease = lease
        self._void_grants(at)
        self._judge()

    def fenced(self) -> None:
        """Stop the handlers; the claims are ended or given back once the store answers."""
        fence, now = self._services.fence, self._services.clock.elapsed()
        self._fence([name for name in self._supervisors if fence.must_stop(now, name)], True)

    def _apply(self, beat: Beat, sent_at: float) -> None:
        self._judge()
        for queue, supervisor in self._supervisors.items():
            if queue in beat.admitted:
                supervisor.void_grant(self._services.clock.elapsed())
            elif (news := beat.queues.get(queue)) is not None:
                supervisor.apply(news, sent_at)

    def _judge(self) -> None:
        """Fence the queues that are silent for too long, and no others."""
        fence, now = self._services.fence, self._services.clock.elapsed()
        silent = {name for name in self._supervisors if fence.must_stop(now, name)}
        self._fence(silent, True)
        self._fence(self._supervisors.keys() - silent, False)

    def _fence(self, queues: Iterable[str], fenced: bool) -> None:
        for queue in queues:
            if fenced != (queue in self._fenced):
                (self._fenced.add if fenced else self._fenced.discard)(queue)
                self._supervisors[queue].fence(fenced)

    def _void_grants(self, at: float) -> None:
        for supervisor in self._supervisors.values():
            supervisor.void_grant(at)

    def _reconcile(self, beat: Beat, sent_at: float) -> None:
        """Give back claims whose reply was lost.

        A claim unknown here may still be on its way in the reply to a call. It is given back
        when a second beat finds it too and no call that could bring it is under way any more.
        """
        seen: dict[Claim, int] = {}
        services = self._services
        if services.given_up and beat.lease_held:
            listed = {*beat.unknown, *beat.claims}
            # A beat sent before a claim was given up may say nothing of it.
            services.given_up = {
                claim: at
                for claim, at in services.given_up.items()
                if claim in listed or at >= sent_at or claim.queue in beat.silent
            }
        for claim in beat.unknown:
            supervisor = self._supervisors.get(claim.queue)
            if supervisor is None or claim in services.held or claim in services.given_up:
                continue
            lane = supervisor.lane
            carrier = self._unknown.get(claim)
            if carrier is None:
                seen[claim] = lane.calls_begun if lane.in_flight else 0
            elif lane.in_flight and carrier == lane.calls_begun:
                seen[claim] = carrier
            else:
                self._give_back(claim, lane)
        self._unknown = seen

    def _give_back(self, claim: Claim, lane: ExchangeLane) -> None:
        logger.warning(
            "job %s is claimed for this pod, but the reply was lost; releasing the claim",
            claim.job_id,
            extra={"job_id": claim.job_id, "queue": claim.queue},
        )
        lane.release([claim])
