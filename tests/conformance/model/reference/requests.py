"""Requests to pods, as the contract tells of them."""

from msgspec.structs import replace

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.ids import HostId
from forge_jobs.model.pod_requests import (
    ANSWERED_WITHIN,
    MOST_REQUESTS,
    REQUESTS_KEPT,
    PodRequest,
    PodVerb,
    RequestState,
)
from forge_jobs.model.processes import PodLease
from tests.conformance.model.reference.state import World


def open_requests(world: World, lease: PodLease) -> list[PodRequest]:
    """Requests to the registration that have no answer, while their time lasts."""
    return [
        each
        for each in world.pod_requests
        if _is_to(each, lease) and each.answered_at is None and each.until > world.now
    ]


def _is_to(request: PodRequest, lease: PodLease) -> bool:
    return (request.host_id, request.epoch) == (lease.host_id, lease.epoch)


class ReferenceRequests:
    """``AskedStore``."""

    _world: World

    def ask_pod(
        self, host_id: HostId, verb: PodVerb, *, request_id: str, asked_by: str = ""
    ) -> PodRequest:
        world = self._world
        for known in self._kept():
            if known.id == request_id:
                if (known.host_id, known.verb) != (host_id, verb):
                    raise Conflict("another request")
                return self._told(known)
        pod = world.pods.get(host_id)
        if pod is None or pod.until <= world.now:
            raise NotFound("no live pod")
        mine = [each for each in self._kept() if each.host_id == host_id]
        if sum(each.until > world.now for each in mine) >= MOST_REQUESTS:
            raise Conflict("too often")
        request = PodRequest(
            id=request_id,
            host_id=host_id,
            epoch=pod.epoch,
            verb=verb,
            asked_by=asked_by,
            asked_at=world.now,
            until=world.now + ANSWERED_WITHIN,
            state=RequestState.WAITING,
        )
        gone = mine[: -(MOST_REQUESTS - 1)]
        world.pod_requests = [each for each in world.pod_requests if each not in gone]
        world.pod_requests.append(request)
        return request

    def hear_requests(self, lease: PodLease) -> list[PodRequest]:
        world = self._world
        found = [each for each in open_requests(world, lease) if each.asked_at <= world.now]
        for each in found:
            if each.heard_at is None:
                self._change(each, heard_at=world.now)
        heard = {each.id for each in found}
        return [self._told(each) for each in open_requests(world, lease) if each.id in heard]

    def answer_request(
        self, lease: PodLease, request_id: str, answer: str, *, done: bool = True
    ) -> bool:
        for each in self._kept():
            if each.id == request_id and _is_to(each, lease):
                if each.answered_at is None:
                    self._change(each, answered_at=self._world.now, answer=answer, done=done)
                return True
        return False

    def pod_request(self, request_id: str) -> PodRequest:
        for each in self._kept():
            if each.id == request_id:
                return self._told(each)
        raise NotFound("no request")

    def pod_requests(self, host_id: HostId) -> list[PodRequest]:
        mine = [self._told(each) for each in self._kept() if each.host_id == host_id]
        return mine[::-1]

    def _kept(self) -> list[PodRequest]:
        since = self._world.now - REQUESTS_KEPT
        return [each for each in self._world.pod_requests if each.asked_at > since]

    def _change(self, request: PodRequest, **fields: object) -> None:
        world = self._world
        changed = replace(request, **fields)
        world.pod_requests = [changed if each is request else each for each in world.pod_requests]

    def _told(self, request: PodRequest) -> PodRequest:
        if request.answered_at is not None:
            state = RequestState.ANSWERED
        elif request.until <= self._world.now:
            state = RequestState.UNANSWERED
        else:
            state = RequestState.WAITING if request.heard_at is None else RequestState.HEARD
        return replace(request, state=state)
