"""Records, checks and words of all stores about requests to pods."""

from forge_jobs.clock import from_us
from forge_jobs.errors import Conflict
from forge_jobs.model.ids import HostId
from forge_jobs.model.pod_requests import (
    ANSWERED_WITHIN,
    MOST_REQUESTS,
    PodRequest,
    PodVerb,
    RequestState,
)
from forge_jobs.storage.salvage import UNREADABLE, log_unreadable


def absent_pod(host_id: HostId) -> str:
    """The problem of asking a pod that does not live."""
    return f"there is no live pod {host_id}; see the list of pods"


def asked_too_often(host_id: HostId) -> str:
    """The problem of asking a pod once more."""
    seconds = ANSWERED_WITHIN.total_seconds()
    return f"pod {host_id} was asked {MOST_REQUESTS} times in {seconds:.0f} s; wait, then ask again"


def unknown(request_id: str) -> str:
    """The problem of a request that is not there."""
    return f"there is no request {request_id}; a request is kept for an hour"


def stored_request(
    now: int,
    *,
    id: str,
    host_id: str,
    epoch: str,
    verb: str,
    asked_by: str,
    asked_at: int | str,
    until: int | str,
    heard_at: int | str | None,
    answered_at: int | str | None,
    done: bool,
    answer: str,
) -> PodRequest | None:
    """Return a request as stored, None where the record cannot be read.

    A later release has asked for what this one does not know, or an edit by hand has spoilt the
    record. Other requests are heard all the same, and this one stays without an answer.

    :param asked_at, until, heard_at, answered_at: in microseconds, or the texts of such numbers
    """
    try:
        heard, answered = (None if each is None else int(each) for each in (heard_at, answered_at))
        return PodRequest(
            id=id,
            host_id=HostId(host_id),
            epoch=epoch,
            verb=PodVerb(verb),
            asked_by=asked_by,
            asked_at=from_us(int(asked_at)),
            until=from_us(int(until)),
            state=_state(now, int(until), heard, answered),
            heard_at=None if heard is None else from_us(heard),
            answered_at=None if answered is None else from_us(answered),
            done=bool(done),
            answer=answer,
        )
    except UNREADABLE as error:
        log_unreadable("the request to a pod", id, str(error), "ask the pod anew")
        return None


def _state(now: int, until: int, heard_at: int | None, answered_at: int | None) -> RequestState:
    if answered_at is not None:
        return RequestState.ANSWERED
    if now >= until:
        return RequestState.UNANSWERED
    return RequestState.WAITING if heard_at is None else RequestState.HEARD


def same_request(found: PodRequest, host_id: HostId, verb: PodVerb) -> PodRequest:
    """Return the request that a repeat has met.

    :raises Conflict: the caller means another one
    """
    if (found.host_id, found.verb) != (host_id, verb):
        raise Conflict(
            f"request {found.id} asks pod {found.host_id} to {found.verb}; take a new id"
        )
    return found
