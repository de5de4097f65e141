"""The cost of a claim while an old snapshot keeps the store from forgetting ended jobs."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from bench.figures import median_costs
from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus, NewJob
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage

TARGETS = {"postgres": "<= 3", "sqlite": "<= 2"}

QUEUE, KIND = "bench0", "bench.noop"
ENDED, CLAIMS, BATCH, MANY = 60_000, 200, 10, 1_000

_DONE = Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED)
_LEASE = timedelta(hours=1)


async def old_snapshot(bench: Bench) -> None:
    """Claims after jobs have ended under an old snapshot, over claims of the same store before."""
    kind = bench.store.kind
    if kind not in TARGETS:
        return
    ended, claims = bench.scaled(ENDED), bench.scaled(CLAIMS)
    slower: list[float] = []
    costs: list[dict[str, float]] = []
    for _ in range(bench.runs):
        url = await bench.store.fresh()
        async with await open_storage(url) as storage:
            pod = _Claimer(storage, await _registered(storage))
            await pod.enqueue(ended + 2 * claims * BATCH)
            before = await pod.claim_ms(claims)
            async with SNAPSHOTS[kind](url):
                await pod.run(ended)
                slower.append(await pod.claim_ms(claims) / before)
                costs.append(await _told(storage))
    bench.add(
        f"claim p50 after {ended:,} jobs ended under an old snapshot, over before",
        "x",
        slower,
        target=TARGETS[kind],
        costs=median_costs(costs),
    )


async def _told(storage: Storage) -> dict[str, float]:
    if storage.open_transactions is None:
        return {}
    found = await storage.open_transactions()
    return {"age of it that doctor is told, s": found.oldest.total_seconds()}


class _Claimer:
    """Claims and ends jobs, without a runtime."""

    def __init__(self, storage: Storage, lease: PodLease) -> None:
        self._jobs = storage.jobs
        self._lease = lease

    async def enqueue(self, count: int) -> None:
        for portion in _portions(count):
            await self._jobs.enqueue(
                [
                    NewJob(id=new_job_id(), queue=QUEUE, kind=KIND, payload="{}")
                    for _ in range(portion)
                ]
            )

    async def run(self, count: int) -> None:
        """Claim and end so many, many at a time."""
        ends: list[Finalization] = []
        for portion in _portions(count):
            exchange = await self._jobs.exchange(QUEUE, ends, _demand(portion), self._lease)
            ends = _ends(exchange.claimed)
        await self._jobs.finalize(ends)

    async def claim_ms(self, count: int) -> float:
        """The median time of so many claims, each of ten jobs that end untimed."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            exchange = await self._jobs.exchange(QUEUE, (), _demand(BATCH), self._lease)
            times.append(1_000 * (time.perf_counter() - began))
            if len(exchange.claimed) != BATCH:
                raise ValueError(f"claimed {len(exchange.claimed)} of {BATCH}")
            await self._jobs.finalize(_ends(exchange.claimed))
        return median(times)


def _portions(count: int) -> Iterator[int]:
    for first in range(0, count, MANY):
        yield min(MANY, count - first)


def _demand(limit: int) -> Demand:
    return Demand(worker_ids=(), limit=limit, kinds=frozenset({KIND}))


def _ends(claimed: tuple[ClaimedJob, ...]) -> list[Finalization]:
    return [Finalization(job.claim, _DONE) for job in claimed]


async def _registered(storage: Storage) -> PodLease:
    pod = Pod(
        host_id=new_host_id(), label="", queues=(QUEUE,), kinds=(KIND,), version="", process_id=1
    )
    return await storage.procs.register(pod, _LEASE)


@asynccontextmanager
async def _postgres(url: str) -> Any:
    connection = await asyncpg.connect(urlsplit(url)._replace(query="").geturl())
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT txid_current_if_assigned()")
            yield
    finally:
        await connection.close()


@asynccontextmanager
async def _sqlite(url: str) -> Any:
    path = urlsplit(url).path.removeprefix("/")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM forge_queues").fetchone()
        yield


SNAPSHOTS: dict[str, Any] = {"postgres": _postgres, "sqlite": _sqlite}
