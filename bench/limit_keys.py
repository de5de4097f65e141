"""The cost of limits by key for a claim: among 50,000 keys, and behind 100,000 jobs of full keys.

Two queues of one store are exchanged with by turns, so a busy machine slows both.
"""

import time
from collections.abc import Iterable
from datetime import timedelta
from statistics import median

from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus, NewJob
from forge_jobs.model.processes import Pod
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage

KEYS, HEAD, FULL = 50_000, 100_000, 1_000
TURNS = 200
BATCHES = (1, 20)
TARGET = "<= 1.5"
_NARROW, _WIDE, CLEAR, BEHIND = "narrow", "wide", "clear", "behind"
_QUEUES = (_NARROW, _WIDE, CLEAR, BEHIND)
_KIND, _LIMIT, _MANY = "k", "host", 100_000
_AT_ONCE = 500


class Exchanges:
    """A pod that ends what it has of a queue and claims as much again."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._held: dict[str, tuple[ClaimedJob, ...]] = dict.fromkeys(_QUEUES, ())

    async def register(self) -> None:
        self._lease = await self.storage.procs.register(
            Pod(
                host_id=new_host_id(),
                label="bench",
                version="",
                process_id=1,
                queues=_QUEUES,
                kinds=(_KIND,),
            ),
            timedelta(hours=5),
        )

    async def fill(self, queue: str, keys: Iterable[str]) -> None:
        """Enqueue a job for each key, of no limit for none."""
        requests = [
            NewJob(
                id=new_job_id(),
                queue=queue,
                kind=_KIND,
                payload="{}",
                limit_name=_LIMIT if key else "",
                limit_key=key,
            )
            for key in keys
        ]
        for first in range(0, len(requests), _AT_ONCE):
            await self.storage.jobs.enqueue(requests[first : first + _AT_ONCE])

    async def hold(self, queue: str, count: int) -> None:
        """Claim jobs that never end."""
        while count > 0:
            count -= len((await self._exchange(queue, (), min(count, _AT_ONCE)))[1])

    async def turn(self, queue: str, batch: int) -> tuple[float, int]:
        """Return the milliseconds of one exchange, and how many jobs it brought."""
        took, self._held[queue] = await self._exchange(queue, self._held[queue], batch)
        return took, len(self._held[queue])

    async def _exchange(
        self, queue: str, held: tuple[ClaimedJob, ...], batch: int
    ) -> tuple[float, tuple[ClaimedJob, ...]]:
        done = Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED)
        ends = [Finalization(one.claim, done) for one in held]
        demand = Demand(worker_ids=("w",) * batch, limit=batch, kinds=frozenset({_KIND}))
        began = time.perf_counter()
        outcome = await self.storage.jobs.exchange(queue, ends, demand, self._lease)
        return 1000 * (time.perf_counter() - began), outcome.claimed

    async def ratio(self, plain: str, other: str, batch: int, turns: int) -> tuple[float, float]:
        """Return how many times as long an exchange of the other queue takes, and how long.

        :raises ValueError: an exchange brought less than was asked for
        """
        took: dict[str, list[float]] = {plain: [], other: []}
        for _ in range(turns):
            for queue, times in took.items():
                milliseconds, count = await self.turn(queue, batch)
                if count != batch:
                    raise ValueError(f"{queue}: {count} jobs of {batch}")
                times.append(milliseconds)
        return median(took[other]) / median(took[plain]), median(took[other])


async def limit_keys(bench: Bench) -> None:
    """Exchanges among many keys over those of one key, and behind full keys over those without."""
    keys, head, turns = (bench.scaled(n, n // 10) for n in (KEYS, HEAD, TURNS))
    full, shares = head * FULL // HEAD, dict[str, list[float]]()
    slowest, met = dict[str, float](), list[float]()
    for _ in range(bench.runs):
        url = await bench.store.fresh()
        async with await open_storage(url) as storage:
            pod = Exchanges(storage)
            await pod.register()
            for queue, at_most in ((_NARROW, _MANY), (_WIDE, 2), (CLEAR, _MANY), (BEHIND, 1)):
                await storage.config.set_limit(queue, _LIMIT, at_most)
            free = [""] * (sum(BATCHES) * (turns + 2))
            await pod.fill(BEHIND, (f"host-{n}" for n in range(full)))
            await pod.hold(BEHIND, full)
            await pod.fill(BEHIND, (f"host-{n % full}" for n in range(head)))
            await pod.fill(BEHIND, free)
            await pod.fill(CLEAR, free)
            await pod.fill(_NARROW, ["host-0"] * keys)
            await pod.fill(_WIDE, (f"host-{n}" for n in range(keys)))
            await bench.store.filled(url)
            met.append(await _meet(pod))
            for batch in BATCHES:
                for name, plain, other in (
                    (f"among keys, {batch} at once", _NARROW, _WIDE),
                    (f"behind jobs of full keys, {batch} at once", CLEAR, BEHIND),
                ):
                    share, slowest[name] = await pod.ratio(plain, other, batch, turns)
                    shares.setdefault(name, []).append(share)
    bench.add(f"first free job behind {head:,} of {full:,} full keys", "ms", met)
    for name, runs in shares.items():
        counts = f"{keys:,} " if name.startswith("among") else f"{head:,} "
        name_, costs = name.replace(" ", f" {counts}", 1), {"an exchange, ms": slowest[name]}
        bench.add(f"exchange {name_}, over without", "x", runs, target=TARGET, costs=costs)


async def _meet(pod: Exchanges) -> float:
    """Return the milliseconds until a free job comes. Each claim puts some jobs on hold."""
    total, count = 0.0, 0
    while not count:
        took, count = await pod.turn(BEHIND, 1)
        total += took
    return total
