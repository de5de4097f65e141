"""Asking pods for something, from a test."""

from typing import Protocol

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.pod_requests import PodRequest, PodVerb, RequestState
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import ProcStore, Storage
from tests.support.waiting import wait_until


async def ask(storage: Storage, host_id: HostId, verb: PodVerb) -> PodRequest:
    """Ask once."""
    return await storage.procs.ask_pod(host_id, verb, request_id=new_job_id(), asked_by="a test")


async def over(storage: Storage, request: PodRequest) -> PodRequest:
    """Wait until a request is answered or unanswered."""
    settled = (RequestState.ANSWERED, RequestState.UNANSWERED)

    async def look() -> PodRequest | None:
        found = await storage.procs.pod_request(request.id)
        return found if found.state in settled else None

    found: PodRequest = await wait_until(look, description=f"{request.verb} is answered or not")
    return found


async def answered(storage: Storage, host_id: HostId, verb: PodVerb) -> PodRequest:
    """Ask until the pod answers: on a loaded machine a pod may stand still for five seconds."""

    async def look() -> PodRequest | None:
        try:
            found = await over(storage, await ask(storage, host_id, verb))
        except (Conflict, NotFound):
            return None
        return found if found.state is RequestState.ANSWERED else None

    found: PodRequest = await wait_until(look, description=f"the pod answers {verb}")
    return found


class Asked(Protocol):
    """A pod, and the store that knows the pod."""

    @property
    def procs(self) -> ProcStore:
        """Return the store."""
        ...

    @property
    def lease(self) -> PodLease:
        """Return the lease of the pod."""
        ...


async def ask_and_answer(of: Asked) -> None:
    """Call every verb of requests once."""
    procs, lease = of.procs, of.lease
    asked = await procs.ask_pod(lease.host_id, PodVerb.QUIET, request_id=new_job_id())
    assert [each.id for each in await procs.hear_requests(lease)] == [asked.id]
    assert await procs.answer_request(lease, asked.id, "quiet")
    assert [await procs.pod_request(asked.id)] == await procs.pod_requests(lease.host_id)
