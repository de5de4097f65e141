"""The start of a pod: lifespans, the fleet, the loops. What fails is taken back."""

import asyncio
import contextlib

import anyio

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import StoreTime
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.processes import Pod
from forge_jobs.policy.liveness import Fence
from forge_jobs.runtime.pod.pod import RunningPod
from forge_jobs.runtime.pod.startup import RuntimePlan, describe_pod, join, read_store_time
from forge_jobs.runtime.shared.pod_values import PodValues


async def start_pod(plan: RuntimePlan) -> RunningPod:
    """Join the fleet and begin to work.

    :raises Unavailable: the store was not ready in time
    :raises LifespanFailed: a lifespan raised. The store has heard nothing of this pod
    """
    pod = describe_pod(plan, new_host_id())
    store_time = await read_store_time(plan)
    client = JobClient(plan.storage, plan.handlers, router=plan.router, clock=plan.clock)
    values = PodValues(client)
    try:
        await values.open(plan.handlers.lifespans())
        return await _joined(plan, pod, store_time, values)
    except BaseException:
        await _undone(plan, values)
        raise


async def _joined(
    plan: RuntimePlan, pod: Pod, store_time: StoreTime, values: PodValues
) -> RunningPod:
    lease, asked_at = await join(plan, pod)
    fence = Fence(plan.settings.lease, plan.settings.fence_margin, asked_at)
    try:
        running = RunningPod(plan, pod, lease, fence, store_time=store_time, values=values)
        running.start()
    except BaseException:
        with contextlib.suppress(Exception):
            await plan.storage.procs.unregister(lease)
        raise
    return running


async def _undone(plan: RuntimePlan, values: PodValues) -> None:
    """Leave the lifespans of a pod that has not started."""
    loop = asyncio.get_running_loop()
    until = loop.time() + plan.settings.grace.total_seconds()
    with anyio.CancelScope(shield=True):
        await values.close(lambda: until)
        await values.client.aclose()
