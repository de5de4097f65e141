"""The cost of limits by key that hold nothing back: exchanges with limits over plain ones."""

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
QUEUES = (PLAIN, LIMITED, ONE_KEY, MANY_KEYS)
KIND, LIMIT = "bench.noop", "bench.noop"
JOBS, BATCH, KEYS, ROUNDS, MANY = 3_000, 20, 50, 4, 1_000
CLAIMS, WAITING = 100, 50_000
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
    for queue in QUEUES[1:]:
        await storage.config.ensure_limits(queue, {LIMIT: NO_BOUND})
    pod = Pod(
        host_id=new_host_id(), label="", queues=QUEUES, kinds=(KIND,), version="", process_id=1
    )
    return await storage.procs.register(pod, timedelta(hours=1))
