"""Documents of requests to pods."""

from msgspec import Struct

from forge_jobs.model.pod_requests import ANSWERED_WITHIN, PodRequest, RequestState
from forge_jobs.operating.words import duration


class PodRequestView(PodRequest, frozen=True, kw_only=True):
    """A request to a pod, and how far the request has come in a sentence."""

    summary: str


class PodRequests(Struct, frozen=True):
    """The newest requests to a pod, the newest first."""

    requests: tuple[PodRequestView, ...]


def summary_of(request: PodRequest) -> str:
    """Return in a sentence what has become of a request."""
    if request.state is RequestState.ANSWERED and request.answered_at is not None:
        took = duration(request.answered_at - request.asked_at)
        refusal = "" if request.done else ", and did not do so"
        return f"The pod answered after {took}{refusal}."
    if request.state is RequestState.WAITING:
        return "The pod has not heard of the request yet."
    if request.state is RequestState.HEARD:
        return "The pod has heard of the request, and has not answered yet."
    within = duration(ANSWERED_WITHIN)
    if request.heard_at is None:
        return (
            f"Unanswered: the pod did not hear of the request within {within}, and never will. The "
            "pod may be frozen, cut off from the store, or of a release that knows no requests."
        )
    return (
        "Unanswered: the pod heard of the request and has said nothing since. The pod may have "
        "acted, or may act once the event loop turns again."
    )
