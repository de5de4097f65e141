"""Scripts that hold a Redis server up for longest: ``python -m bench.slowest --help``.

Fills a store with many jobs, queues, kinds and pods, makes all calls of programs, pods and
operators, and reads from ``SLOWLOG`` how long each script took on the server.
"""

import argparse
import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from redis.asyncio import Redis

from forge_jobs import open_storage
from forge_jobs.clients.bulk import in_batches
from forge_jobs.config import RuntimeSettings
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus, NewJob, Unique
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.processes import HeldClaim, Pod, PodGauges, PodLease
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.model.transitions import Demand, Finalization, Revival, Transition
from forge_jobs.operating.health.findings import examine_queues
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.runtime.passes.coordinator import CoordinatorMemory, coordinate_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.scripts import script
from forge_jobs.testing.servers import RedisServer

LONG = timedelta(days=1)
BIG = "big"
SCRIPTS = Path(__file__).parents[1] / "forge_jobs/storage/redis/lua"
_AT_ONCE = 200


def _done() -> Transition:
    return Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED, delay=None)


class Filled:
    """A store and its contents.

    :param jobs: in all. Six tenths in one queue, of which a third has ended
    """

    def __init__(self, url: str, jobs: int, queues: int, kinds: int, pods: int) -> None:
        self.url, self.jobs, self.pods = url, jobs, pods
        self.queues = [BIG, *(f"q{number:04}" for number in range(1, queues))]
        self.kinds = [f"kind.{number:04}" for number in range(kinds)]

    def job(self, queue: str, **more: Any) -> NewJob:
        # One queue has jobs of all kinds, the others of a few.
        place = 0 if queue == BIG else 5 * self.queues.index(queue)
        number = random.randrange(len(self.kinds) if queue == BIG else 5)
        kind = self.kinds[(place + number) % len(self.kinds)]
        return NewJob(
            id=new_job_id(), queue=queue, kind=kind, payload='{"n": 1}', **({"tags": ("t",)} | more)
        )

    async def register(self, storage: Storage, number: int) -> PodLease:
        served = [
            BIG,
            *(self.queues[(20 * number + each) % len(self.queues)] for each in range(20)),
        ]
        return await storage.procs.register(
            Pod(
                host_id=new_host_id(),
                label=f"pod{number}",
                version="1",
                process_id=number,
                queues=tuple(dict.fromkeys(served)),
                kinds=tuple(self.kinds),
            ),
            LONG,
        )

    async def fill(self, storage: Storage) -> None:
        """Go on until all is there. A second call completes the first."""
        jobs, kinds = storage.jobs, frozenset(self.kinds)
        counts = await jobs.counts()
        stored = sum(sum(each.by_status.values()) for each in counts.values())
        share = max(1, self.jobs * 4 // 10 // len(self.queues))
        place = 0
        while stored < self.jobs:
            if stored < self.jobs * 6 // 10:
                queue, number = BIG, _AT_ONCE
            else:
                place = place % (len(self.queues) - 1) + 1
                queue, number = self.queues[place], min(share, _AT_ONCE)
            await jobs.enqueue([self.job(queue) for _ in range(number)])
            stored += number
        lease = await self.register(storage, 0)
        ended = counts[BIG].by_status["done"] if BIG in counts else 0
        demand = Demand(worker_ids=("w",) * _AT_ONCE, limit=_AT_ONCE, kinds=kinds)
        claimed: Sequence[ClaimedJob] = ()
        while ended < self.jobs * 2 // 10:
            ends = [Finalization(each.claim, _done()) for each in claimed]
            claimed = (await jobs.exchange(BIG, ends, demand, lease)).claimed
            ended += len(ends)
        await jobs.release([each.claim for each in claimed])
        have = len(await storage.procs.pods())
        for number in range(have, self.pods):
            await self.register(storage, number)


class Asked:
    """Makes every call, and reports calls that are not possible."""

    def __init__(self, filled: Filled, storage: Storage) -> None:
        self.filled, self.storage = filled, storage

    def every(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """By name, in the order in which they are asked."""
        return {
            "enqueue": self._enqueue,
            "claims and ends": self._exchange,
            "lists": self._lists,
            "reads": self._reads,
            "pods": self._pods,
            "bulk": self._bulk,
            "passes": self._passes,
            "doctor": self._doctor,
        }

    async def _enqueue(self) -> None:
        jobs, make = self.storage.jobs, self.filled.job
        for _ in range(20):
            await jobs.enqueue([make("q0001", tags=())])
            await jobs.enqueue([make("q0001", unique=Unique(random.randbytes(8).hex()))])
        for start in range(0, 10_000, jobs.enqueue_at_once):
            del start
            await jobs.enqueue([make(BIG, tags=("new",)) for _ in range(jobs.enqueue_at_once)])
        await jobs.enqueue([make(queue, tags=("new",)) for queue in self.filled.queues[:500]])
        parents = [make("q0002") for _ in range(250)]
        await jobs.enqueue(parents)

    async def _exchange(self) -> None:
        jobs = self.storage.jobs
        lease = await self.filled.register(self.storage, 1)
        held: list[ClaimedJob] = []
        for limit in (1, 10, 100, 500):
            for _ in range(5):
                demand = Demand(
                    worker_ids=("w",) * limit, limit=limit, kinds=frozenset(self.filled.kinds)
                )
                held += (await jobs.exchange(BIG, (), demand, lease)).claimed
        for _ in range(5):
            kinds = frozenset(self.filled.kinds[:10])
            demand = Demand(worker_ids=("w",) * 10, limit=10, kinds=kinds)
            await jobs.exchange("q0003", (), demand, lease)
        await jobs.heartbeat(lease, [HeldClaim(each.claim, "w") for each in held], LONG)
        await jobs.record_start([each.claim for each in held[:200]])
        await jobs.finalize([Finalization(each.claim, _done()) for each in held[:1000]])
        await jobs.release([each.claim for each in held[1000:1500]])
        rest = [each.claim for each in held[1500:]]
        await jobs.stale_claims(timedelta(0), 1_000)
        crashed = Transition(
            status=JobStatus.PENDING, cause=Cause.CRASHED, delay=None, count_crash=True
        )
        await jobs.revive([Revival(claim, crashed) for claim in rest], timedelta(0))

    async def _lists(self) -> None:
        now = await self.storage.cron.now()
        filters = [
            JobFilter(),
            JobFilter(queues=(BIG,)),
            JobFilter(kinds=(self.filled.kinds[7],)),
            JobFilter(queues=(BIG,), kinds=(self.filled.kinds[7],)),
            JobFilter(statuses=(JobStatus.DONE,)),
            JobFilter(statuses=(JobStatus.DEAD,)),
            JobFilter(statuses=(JobStatus.PENDING,), kinds=(self.filled.kinds[8],)),
            JobFilter(causes=(Cause.EXPIRED,)),
            JobFilter(tag="t"),
            JobFilter(tag="nothing"),
            JobFilter(tag="new", queues=(BIG,)),
            JobFilter(unique_key="none"),
            JobFilter(schedule="none"),
            JobFilter(enqueued_before=now - timedelta(hours=1)),
            JobFilter(enqueued_after=now),
        ]
        for which in filters:
            for limit in (50, 1_000):
                page = await self.storage.jobs.list(which, limit=limit)
                if page.cursor:
                    await self.storage.jobs.list(which, cursor=page.cursor, limit=limit)

    async def _reads(self) -> None:
        jobs, storage = self.storage.jobs, self.storage
        now = await storage.cron.now()
        page = await jobs.list(JobFilter(queues=(BIG,)), limit=1_000)
        await jobs.get([each.id for each in page.jobs])
        for _ in range(3):
            await jobs.counts()
            await jobs.counts([BIG])
        await jobs.events(limit=1_000)
        for queue in (BIG, "q0001"):
            await jobs.metrics(queue, now - LONG, now + LONG)
            await jobs.events(queue=queue, limit=1_000)
        await storage.procs.gauges(now - LONG, now + LONG)
        await storage.config.queues()
        await storage.procs.due_kinds(self.filled.queues)
        await storage.procs.routes()
        await storage.procs.workers()
        await storage.procs.pods()
        await storage.procs.live_pods()
        await storage.procs.allocations()

    async def _pods(self) -> None:
        storage = self.storage
        now = await storage.cron.now()
        lease = await self.filled.register(storage, 5)
        for _ in range(5):
            await storage.jobs.heartbeat(lease, [], LONG)
        await storage.procs.record_gauges(lease, now.replace(second=0, microsecond=0), PodGauges())
        minute = now.replace(second=0, microsecond=0)
        sample = Histogram({1: 1, 20: 3})
        await storage.jobs.add_latencies(
            lease.host_id,
            [
                LatencySample(queue=queue, minute=minute, processing=sample, total=sample)
                for queue in self.filled.queues
            ],
        )
        await coordinate_once(storage, lease.host_id, RuntimeSettings(), CoordinatorMemory())
        await storage.procs.bring_back_leases()
        await storage.procs.free_held_jobs(1_000)
        await storage.procs.drop_dead_pods(timedelta(0), 100)
        await storage.procs.set_draining(lease)
        await storage.procs.unregister(lease)

    async def _bulk(self) -> None:
        jobs = self.storage.jobs
        which = JobFilter(tag="new", queues=(BIG, "q0001"))
        for verb in (jobs.run_now, jobs.cancel, jobs.requeue, jobs.cancel, jobs.delete):
            await in_batches(_by_thousand(verb), which)

    async def _passes(self) -> None:
        jobs, storage = self.storage.jobs, self.storage
        now = await storage.cron.now()
        soon = now + timedelta(milliseconds=10)
        await jobs.enqueue([self.filled.job("q0004", expires_at=soon) for _ in range(500)])
        while await jobs.expire(1_000):
            pass
        await storage.config.set_queue(BIG, QueueChange(retention=Retention(done=timedelta(0))))
        cleaned = await jobs.cleanup(1_000)
        for _ in range(20):
            cleaned = await jobs.cleanup(1_000, cleaned.rest)
        await jobs.roll_up(1_000)
        for _ in range(20):
            await jobs.sweep(2_000)
        await jobs.handovers(1_000)
        await jobs.bring_back_jobs(1_000)

    async def _doctor(self) -> None:
        storage = self.storage
        await examine_queues(Reader(storage))
        if storage.unreadable is not None:
            await storage.unreadable()
        await storage.cron.schedules()
        await storage.config.rate_limits()
        await storage.cron.leader()


def _by_thousand(verb: Callable[..., Awaitable[BulkOutcome]]) -> Callable[..., Any]:
    async def some(which: JobFilter, *, cursor: str | None) -> BulkOutcome:
        return await verb(which, cursor=cursor, limit=1_000)

    return some


class SlowLog:
    """The server's log of slow scripts.

    :param least: microseconds. Faster scripts are not logged
    """

    def __init__(self, client: Redis, least: int) -> None:
        self._client, self._least = client, least
        self._names = {
            script(path.stem).sha: path.stem
            for path in SCRIPTS.rglob("*.lua")
            if "lib" not in path.relative_to(SCRIPTS).parts
        }

    async def begin(self) -> None:
        await self._client.config_set("slowlog-max-len", 100_000)
        await self._client.config_set("slowlog-log-slower-than", self._least)
        await self._client.slowlog_reset()

    async def read(self) -> dict[str, list[float]]:
        """By script or command how many milliseconds each call took."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for entry in await self._client.slowlog_get(100_000):
            # Commands inside scripts are logged too. EVAL is a first run, which compiles.
            words = entry["command"].decode(errors="replace").split()
            if words[0] == "EVALSHA":
                found[self._names[words[1]]].append(entry["duration"] / 1000)
        await self._client.slowlog_reset()
        return found


async def measure(filled: Filled, rounds: int, most: float, only: str) -> None:
    """Print what took longest, by what was asked.

    :param only: ask what has this in its name
    """
    async with (
        await open_storage(filled.url) as storage,
        aclosing(Redis.from_url(filled.url.partition("?")[0])) as client,
    ):
        log = SlowLog(client, 500)
        server = await client.info("server")
        print(server.get("valkey_version") or server["redis_version"])
        counts = await storage.jobs.counts()
        total = sum(sum(each.by_status.values()) for each in counts.values())
        pods = len(await storage.procs.pods())
        print(f"{total} jobs, {len(counts)} queues, {len(filled.kinds)} kinds, {pods} pods")
        print("| asked | script | calls over 0.5 ms | median ms | longest ms | |")
        print("|---|---|---|---|---|---|")
        for what, ask in Asked(filled, storage).every().items():
            if only not in what:
                continue
            await log.begin()
            for _ in range(rounds):
                await ask()
            taken = sorted((await log.read()).items(), key=lambda each: -median(each[1]))
            for name, times in taken:
                mark = "over" if max(times) > most else ""
                print(
                    f"| {what} | {name} | {len(times)} | {median(times):.1f} | {max(times):.1f} "
                    f"| {mark} |",
                    flush=True,
                )


@asynccontextmanager
async def _server(options: argparse.Namespace) -> AsyncIterator[str]:
    if options.url:
        yield options.url
        return
    with RedisServer(program=options.program) as server:
        yield server.url


async def _main(options: argparse.Namespace) -> None:
    async with _server(options) as url:
        filled = Filled(url, options.jobs, options.queues, options.kinds, options.pods)
        if "fill" in options.do:
            async with await open_storage(url) as storage:
                await filled.fill(storage)
        if "measure" in options.do:
            await measure(filled, options.rounds, options.most, options.only)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.slowest", description=__doc__)
    parser.add_argument("do", nargs="*", default=["fill", "measure"], help="fill, measure or both")
    parser.add_argument("--url", help="of a server to use; by default one is started")
    parser.add_argument("--program", type=Path, help="the server's program; by default Valkey's")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--kinds", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=10.0, help="milliseconds to aim at")
    parser.add_argument("--only", default="", help="ask only what has this in its name")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
