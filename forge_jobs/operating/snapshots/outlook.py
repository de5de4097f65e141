"""Reads that look ahead: a queue with other numbers, and how many pods the queue wants."""

from forge_jobs.clients.forecasts import measured_load
from forge_jobs.model.names import check_name
from forge_jobs.model.objectives import Objective
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.policy.judgement import desired_pods, what_if


class OutlookCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def what_if(
        self, name: str, *, max_workers: int | None = None, arrivals: float = 1.0
    ) -> what_if.Outlook:
        """The outlook of a queue at the load of the last 15 minutes, or with other numbers.

        :param max_workers: in place of the queue's own
        :param arrivals: a factor: 1.5 for half as many jobs again
        :raises NotFound: there is no such queue
        :raises InvalidInput: a number is out of range
        """
        self.actor.need(Right.READ)
        self._may_see(check_name("queue", name))
        load = await measured_load(self.storage, name)
        return what_if.what_if(load, max_workers=max_workers, arrivals=arrivals)

    async def desired_pods(self, name: str, objective: Objective) -> desired_pods.DesiredPods:
        """How many pods a queue wants to keep an objective, at the load of the last 15 minutes.

        A pod counts with as many slots as pods of the queue have today on average. Without any pod
        one pod is to have all slots.

        :raises NotFound: there is no such queue
        """
        self.actor.need(Right.READ)
        self._may_see(check_name("queue", name))
        load = await measured_load(self.storage, name)
        serving = [
            pod
            for pod in await self.storage.procs.pods()
            if is_live(pod) and not pod.draining and name in pod.pod.queues
        ]
        granted = sum(pod.slots[name].grant for pod in serving if name in pod.slots)
        each = round(granted / len(serving)) if serving else load.max_workers
        return desired_pods.desired_pods(
            load, objective, pods=len(serving), slots_per_pod=max(each, 1)
        )
