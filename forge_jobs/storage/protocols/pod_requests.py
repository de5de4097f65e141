"""The part of the process store that carries requests to pods."""

from typing import Protocol

from forge_jobs.model.ids import HostId
from forge_jobs.model.pod_requests import PodRequest, PodVerb
from forge_jobs.model.processes import PodLease


class AskedStore(Protocol):
    """Requests of operators to pods, and the answers.

    A request is for one registration: the pod's epoch when the pod was asked. ``Beat.requests``
    tells that registration that a request waits, so that a pod without requests makes no further
    call. Each request can be heard for ``ANSWERED_WITHIN``, and never after.
    """

    async def ask_pod(
        self, host_id: HostId, verb: PodVerb, *, request_id: str, asked_by: str = ""
    ) -> PodRequest:
        """Ask a pod for something. Wakes beats.

        A repeat with the same id asks nothing more and returns the request as stored. Requests past
        ``REQUESTS_KEPT``, and all but the newest ``MOST_REQUESTS`` of the pod, are no longer kept.

        :raises NotFound: no such pod has a live lease
        :raises Conflict: the id is that of another request, or the pod was asked ``MOST_REQUESTS``
            times within ``ANSWERED_WITHIN``
        :raises InvalidInput: an id that is none, or a name that is too long
        """
        ...

    async def hear_requests(self, lease: PodLease) -> list[PodRequest]:
        """Return requests to this registration that have no answer, oldest first.

        Notes when each was first heard. Returns them again until each is answered or the time of
        the request is over, because the reply to an earlier call may have been lost. A request
        dated ahead of the store's time, after a clock was set back, is left out.
        """
        ...

    async def answer_request(
        self, lease: PodLease, request_id: str, answer: str, *, done: bool = True
    ) -> bool:
        """Answer a request. The first answer stays, and a repeat is True.

        An answer that comes late is kept too. False: there is no such request to this registration.

        :raises InvalidInput: the answer has more than ``MAX_ANSWER`` bytes
        """
        ...

    async def pod_request(self, request_id: str) -> PodRequest:
        """Return a request and how far the request has come.

        :raises NotFound: there is none, or the request is past ``REQUESTS_KEPT``
        """
        ...

    async def pod_requests(self, host_id: HostId) -> list[PodRequest]:
        """Return the newest ``MOST_REQUESTS`` requests to a pod, the newest first.

        Requests to earlier registrations of the pod are among them.
        """
        ...
