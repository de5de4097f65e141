"""Requests to pods: quiet, resume, stop, stacks."""

import asyncio
from datetime import timedelta

from forge_jobs.errors import NotFound
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.names import check_name
from forge_jobs.model.pod_requests import ANSWERED_WITHIN, PodRequest, PodVerb, RequestState
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.documents import widened
from forge_jobs.operating.pods.documents import PodRequests, PodRequestView, summary_of
from forge_jobs.outages import Pauses
from forge_jobs.storage.wakeups import until_set

_LOOKS = Pauses(0.05, 0.4, jitter=0)
_AT_MOST = ANSWERED_WITHIN + timedelta(seconds=5)
"""By the clock of this process. The store's clock says whether a request is unanswered."""


class PodCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``.

    Each request is made, recorded, and waited for: the answer comes within a second as a rule, and
    after five seconds the request is unanswered.
    """

    async def quiet_pod(self, host_id: str) -> PodRequestView:
        """Ask a pod to take no new work. Running jobs go on, and the slots go to other pods.

        :raises NotFound: no such pod has a live lease
        :raises Conflict: the pod was asked too often within five seconds
        """
        return await self._asked("quiet_pod", host_id, PodVerb.QUIET)

    async def resume_pod(self, host_id: str) -> PodRequestView:
        """Ask a quiet pod to take work again.

        :raises NotFound: no such pod has a live lease
        :raises Conflict: the pod was asked too often within five seconds
        """
        return await self._asked("resume_pod", host_id, PodVerb.RESUME)

    async def stop_pod(self, host_id: str) -> PodRequestView:
        """Ask a pod to drain and end, as after SIGTERM. An answer says that the stop has begun.

        :raises NotFound: no such pod has a live lease
        :raises Conflict: the pod was asked too often within five seconds
        """
        return await self._asked("stop_pod", host_id, PodVerb.STOP)

    async def show_stacks(self, host_id: str) -> PodRequestView:
        """Ask a pod where each running job and thread stands: functions and lines, no values.

        :raises NotFound: no such pod has a live lease
        :raises Conflict: the pod was asked too often within five seconds
        """
        return await self._asked("show_stacks", host_id, PodVerb.STACKS)

    async def pod_requests(self, host_id: str) -> PodRequests:
        """The newest requests to a pod, with the answers. Requests stay for an hour.

        :raises NotFound: no pod has the id, and no request was made to such a pod
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        pod = HostId(check_name("host_id", host_id))
        found = await self.storage.procs.pod_requests(pod)
        if not found and pod not in {each.pod.host_id for each in await self.storage.procs.pods()}:
            raise NotFound(f"there is no pod {host_id!r}; the store forgets pods that have ended")
        return PodRequests(tuple(_shown(each) for each in found))

    async def _asked(self, operation: str, host_id: str, verb: PodVerb) -> PodRequestView:
        self.actor.act(operation)
        # A pod is of no single queue.
        self.actor.need(Right.QUEUES)
        pod = HostId(check_name("host_id", host_id))
        return await self._recorded(operation, pod, lambda: self._ask(pod, verb))

    async def _ask(self, pod: HostId, verb: PodVerb) -> PodRequestView:
        procs = self.storage.procs
        asked = await procs.ask_pod(pod, verb, request_id=new_job_id(), asked_by=self.actor.name)
        loop = asyncio.get_running_loop()
        until, looks = loop.time() + _AT_MOST.total_seconds(), 0
        while asked.state in (RequestState.WAITING, RequestState.HEARD) and loop.time() < until:
            looks += 1
            await until_set(asyncio.Event(), _LOOKS.after(looks))
            asked = await procs.pod_request(asked.id)
        return _shown(asked)


def _shown(request: PodRequest) -> PodRequestView:
    return widened(PodRequestView, request, summary=summary_of(request))
