"""Reads that look ahead: a queue with other numbers, and how many pods the queue wants."""

from forge_jobs.clients.forecasts import measured_load
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.names import check_name
from forge_jobs.model.objectives import Objective
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.snapshots.pods_wanted import READ_BACK, pods_wanted
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

    async def desired_pods(
        self, name: str, objective: Objective | None = None
    ) -> desired_pods.DesiredPods:
        """How many pods a queue wants to keep an objective, at the load of the last 15 minutes.

        Arrivals and lengths of runs are those of whole minutes, up to the last but one. What waits
        and runs is of now. A pod counts with as many slots as pods of the queue have today on
        average. Without any pod one pod is to have all slots.

        :param objective: None for the queue's own
        :raises NotFound: there is no such queue
        :raises InvalidInput: no objective is given, and the queue has none
        """
        self.actor.need(Right.READ)
        self._may_see(check_name("queue", name))
        states = {state.name: state for state in await self.storage.config.queues()}
        if name not in states:
            raise NotFound(f"there is no queue {name!r}; forge-jobs queues list names all")
        aim = objective or states[name].settings.aim
        if aim is None:
            raise InvalidInput(
                "objective",
                f"is missing, and queue {name!r} has none",
                "give one like 95% within 30s, or set the queue's own",
            )
        counts = await self.storage.jobs.counts([name], ended_at_most=1)
        now = await self.storage.cron.now()
        minutes = await self.storage.jobs.series(now - READ_BACK, now + MINUTE, queue=name)
        pods = await self.storage.procs.pods()
        return pods_wanted(states[name], aim, counts.get(name), minutes, pods, now)
