"""A large store: finished and waiting jobs, pods, and an hour of what pods measure."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from forge_jobs import open_storage
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus, NewJob
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.processes import Pod, PodGauges, PodLease
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.series import FlowSample
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage

QUEUES, KINDS, PODS = 20, 50, 10
DRAINED = "drained"
LEASE = timedelta(days=1)
HISTORY = timedelta(minutes=65)
_AT_ONCE = 1_000

_ENDS = (
    (JobStatus.DONE, Cause.SUCCEEDED, 93),
    (JobStatus.DEAD, Cause.FAILED, 5),
    (JobStatus.CANCELLED, Cause.CANCELLED, 2),
)


def queue_names() -> list[str]:
    """Return the queues. The last one is drained beside a measurement."""
    return [*(f"q{number:02}" for number in range(QUEUES - 1)), DRAINED]


def kind_names() -> list[str]:
    """Return the kinds."""
    return [f"kind.{number:02}" for number in range(KINDS)]


async def fill(url: str, *, finished: int, waiting: int) -> None:
    """Fill an empty store. A store that has jobs stays as it is."""
    async with await open_storage(url) as storage:
        if (await storage.jobs.list(JobFilter(), limit=1)).jobs:
            return
        for name in queue_names():
            await storage.config.set_queue(name, QueueChange(max_workers=20))
        leases = [await _pod(storage, number) for number in range(PODS)]
        queues = queue_names()[:-1]
        for number, queue in enumerate(queues):
            await _finish(storage, queue, _share(finished, number), leases[0])
        for number, queue in enumerate(queues):
            await _wait(storage, queue, _share(waiting, number))
        await _history(storage, leases)
        while await storage.jobs.roll_up(_AT_ONCE):
            pass


def _share(total: int, number: int) -> int:
    """Return what one of the queues has of the total."""
    return total // (QUEUES - 1) + (number < total % (QUEUES - 1))


async def _pod(storage: Storage, number: int) -> PodLease:
    pod = Pod(
        host_id=new_host_id(),
        label=f"pod{number}",
        queues=tuple(queue_names()[:-1]),
        kinds=tuple(kind_names()),
        version="1",
        process_id=number + 1,
    )
    return await storage.procs.register(pod, LEASE)


def _portions(count: int) -> Iterator[int]:
    for first in range(0, count, _AT_ONCE):
        yield min(_AT_ONCE, count - first)


def _new(queue: str, number: int, delay: timedelta) -> NewJob:
    return NewJob(
        id=new_job_id(),
        queue=queue,
        kind=kind_names()[number % KINDS],
        payload=f'{{"n": {number % 1000}, "to": "someone@example.org"}}',
        tags=(f"t{number % 10}",) if number % 10 == 0 else (),
        delay=delay,
    )


async def _finish(storage: Storage, queue: str, count: int, lease: PodLease) -> None:
    demand = Demand(worker_ids=(), limit=_AT_ONCE, kinds=frozenset(kind_names()))
    claimed: Sequence[ClaimedJob] = ()
    for portion in _portions(count):
        await storage.jobs.enqueue([_new(queue, number, timedelta(0)) for number in range(portion)])
        claimed = (await storage.jobs.exchange(queue, _ends(claimed), demand, lease)).claimed
    await storage.jobs.finalize(_ends(claimed))


def _ends(claimed: Sequence[ClaimedJob]) -> list[Finalization]:
    found = []
    for job in claimed:
        status, cause, _ = random.choices(_ENDS, [weight for _, _, weight in _ENDS])[0]
        found.append(Finalization(job.claim, Transition(status=status, cause=cause)))
    return found


async def _wait(storage: Storage, queue: str, count: int) -> None:
    for portion in _portions(count):
        jobs = [_new(queue, number, _delay(number)) for number in range(portion)]
        await storage.jobs.enqueue(jobs)


def _delay(number: int) -> timedelta:
    """Return none for six of ten jobs, and hours for the others."""
    return timedelta(0) if number % 10 < 6 else timedelta(hours=1 + number % 10)


async def _history(storage: Storage, leases: Sequence[PodLease]) -> None:
    now = (await storage.cron.now()).replace(second=0, microsecond=0)
    spread = Histogram({bucket: 1 + bucket % 7 for bucket in range(60, 100)})
    gauges = PodGauges(
        cpu_percent=10.0,
        memory_bytes=1 << 27,
        disk_free_bytes=1 << 34,
        store_latency_ms=1.0,
        loop_lag_ms=1.0,
        running=3,
    )
    for minute in _minutes(now):
        samples = [
            LatencySample(queue=queue, minute=minute, processing=spread, total=spread)
            for queue in queue_names()
        ]
        flows = [
            FlowSample(
                queue=queue,
                kind=kind_names()[(3 * number + each) % KINDS],
                minute=minute,
                counts={Cause.SUCCEEDED.value: 40},
                delay=spread,
                processing=spread,
                total=spread,
            )
            for number, queue in enumerate(queue_names())
            for each in range(3)
        ]
        await storage.jobs.add_latencies(leases[0].host_id, samples)
        await storage.jobs.add_flows(flows)
        for lease in leases:
            await storage.procs.record_gauges(lease, minute, gauges)


def _minutes(now: datetime) -> Iterator[datetime]:
    first = now - HISTORY
    for number in range(int(HISTORY.total_seconds()) // 60):
        yield first + timedelta(minutes=number)
