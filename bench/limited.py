"""The cost of limits by key that hold nothing back, and of fair shares, over plain exchanges."""

import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

from msgspec.structs import replace

from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, JobStatus, NewJob
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage

PLAIN, LIMITED, ONE_KEY, MANY_KEYS = "plain", "limited", "one_key", "many_keys"
FREE, SHARED = "free", "shared"
QUEUES = (PLAIN, LIMITED, ONE_KEY, MANY_KEYS, FREE, SHARED)
KIND, LIMIT = "bench.noop", "bench.noop"
JOBS, BATCH, KEYS, ROUNDS, MANY = 3_000, 20, 50, 4, 1_000
CLAIMS, WAITING = 100, 50_000
SHARED_JOBS, SHARED_KEYS = 4_000, 1_000
NO_BOUND = 100_000

_DONE = Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED)
_DEMAND = Demand(worker_ids=(), limit=BATCH, kinds=frozenset({KIND}))
KeyOf = Callable[[int], str | None]


async def limits(bench: Bench) -> None:
    """Jobs a second of 50 keys over plain ones, and a claim among 50,000 keys over one key."""
    rates: list[float] = []
    claims: list[float] = []
    for _ in range(bench.runs):
        async with await open_storage(await bench.store.fresh()) as storage:
            lease = await _registered(storage)
            rates.append(await _rate(storage, lease, bench.scaled(JOBS)))
            claims.append(await _claim_ms(storage, lease, bench.scaled(WAITING, least=5_000)))
    bench.add("jobs/s, limits that do not bind, over plain", "x", rates, target=">= 0.9")
    bench.add("claim p50 among 50,000 keys, over one key", "x", claims, target="<= 1.5")


async def fair_shares(bench: Bench) -> None:
    """Jobs a second of 1,000 keys that take turns over plain ones."""
    runs: list[float] = []
    speeds: dict[str, float] = {}
    for _ in range(bench.runs):
        async with await open_storage(await bench.store.fresh()) as storage:
            lease = await _registered(storage)
            speeds = await _drained(storage, lease, bench.scaled(SHARED_JOBS, least=2_000))
            runs.append(speeds[SHARED] / speeds[FREE])
    costs = {f"{queue}, jobs/s": speed for queue, speed in speeds.items()}
    bench.add("jobs/s, fair shares of 1,000 keys, over plain", "x", runs, costs=costs)


async def _rate(storage: Storage, lease: PodLease, jobs: int) -> float:
    """The median time of a plain exchange over that of one within limits.

    The two take turns, exchange by exchange, so what else the machine does slows both alike.
    """
    keys: dict[str, KeyOf] = {PLAIN: lambda _: None, LIMITED: lambda n: f"host {n % KEYS}"}
    seconds: dict[str, list[float]] = {queue: [] for queue in keys}
    ends: dict[str, list[Finalization]] = {queue: [] for queue in keys}
    for _ in range(ROUNDS):
        for queue, key_of in keys.items():
            await _enqueue(storage, queue, jobs, key_of)
        for _ in range(jobs // BATCH):
            for queue, found in seconds.items():
                began = time.perf_counter()
                exchange = await storage.jobs.exchange(queue, ends[queue], _DEMAND, lease)
                found.append(time.perf_counter() - began)
                ends[queue] = [Finalization(job.claim, _DONE) for job in exchange.claimed]
                if len(ends[queue]) != BATCH:
                    raise ValueError(f"claimed {len(ends[queue])} of {BATCH}")
    for queue, last in ends.items():
        await storage.jobs.exchange(queue, last, replace(_DEMAND, limit=0), lease)
    return median(seconds[PLAIN]) / median(seconds[LIMITED])


async def _claim_ms(storage: Storage, lease: PodLease, waiting: int) -> float:
    """The median time of a claim where each job has a key of its own, over one key for all."""
    await _enqueue(storage, ONE_KEY, waiting, lambda _: "host")
    await _enqueue(storage, MANY_KEYS, waiting, lambda n: f"host {n}")
    times: dict[str, list[float]] = {ONE_KEY: [], MANY_KEYS: []}
    for _ in range(CLAIMS):
        for queue, found in times.items():
            began = time.perf_counter()
            exchange = await storage.jobs.exchange(queue, (), _DEMAND, lease)
            found.append(time.perf_counter() - began)
            await storage.jobs.finalize(
                [Finalization(job.claim, _DONE) for job in exchange.claimed]
            )
    return median(times[MANY_KEYS]) / median(times[ONE_KEY])


async def _drained(storage: Storage, lease: PodLease, jobs: int) -> dict[str, float]:
    """Jobs a second of a backlog with shares and of one without, by turns, until both are gone.

    A claim that puts jobs on hold and takes few or none counts with its time.
    """
    await _enqueue(storage, FREE, jobs, lambda _: None)
    await _enqueue(storage, SHARED, jobs, lambda n: f"tenant {n % SHARED_KEYS}")
    seconds = dict.fromkeys((FREE, SHARED), 0.0)
    left = dict.fromkeys(seconds, jobs)
    ends: dict[str, list[Finalization]] = {queue: [] for queue in seconds}
    while any(left.values()):
        for queue in [queue for queue, number in left.items() if number]:
            began = time.perf_counter()
            exchange = await storage.jobs.exchange(queue, ends[queue], _DEMAND, lease)
            seconds[queue] += time.perf_counter() - began
            ends[queue] = [Finalization(job.claim, _DONE) for job in exchange.claimed]
            left[queue] -= len(ends[queue])
    return {queue: jobs / took for queue, took in seconds.items()}


async def _enqueue(storage: Storage, queue: str, count: int, key_of: KeyOf) -> None:
    for first in range(0, count, MANY):
        numbers = range(first, min(first + MANY, count))
        await storage.jobs.enqueue([_job(queue, key_of(number)) for number in numbers])


def _job(queue: str, key: str | None) -> NewJob:
    name = "" if key is None else LIMIT
    return NewJob(
        id=new_job_id(), queue=queue, kind=KIND, payload="{}", limit_name=name, limit_key=key or ""
    )


async def _registered(storage: Storage) -> PodLease:
    for queue in (LIMITED, ONE_KEY, MANY_KEYS):
        await storage.config.ensure_limits(queue, {LIMIT: NO_BOUND})
    await storage.config.ensure_limits(SHARED, {LIMIT: NO_BOUND}, {LIMIT: 1})
    pod = Pod(
        host_id=new_host_id(), label="", queues=QUEUES, kinds=(KIND,), version="", process_id=1
    )
    return await storage.procs.register(pod, timedelta(hours=1))
