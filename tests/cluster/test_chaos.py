"""Pods that are killed, frozen and stopped in a random order, while jobs keep coming.

``FORGE_CHAOS_SEED`` repeats a run, ``FORGE_CHAOS_ROUNDS`` makes it longer.
"""

import os
import random
import signal
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, PodProcess, quick_settings
from tests.support.waiting import wait_until

ROUNDS = int(os.environ.get("FORGE_CHAOS_ROUNDS", "5"))
SEED = int(os.environ.get("FORGE_CHAOS_SEED", random.SystemRandom().randrange(10**9)))
QUEUES = {"work": 8}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.timeout(120 + 10 * ROUNDS),
]


class Chaos:
    """What was done to which pod."""

    def __init__(self, pods: Fleet, rng: random.Random) -> None:
        self._pods = pods
        self._rng = rng
        # A lease that a loaded machine does not miss by accident: who is not disturbed here must
        # not lose a claim.
        self._settings = quick_settings(max_crashes=1_000, lease=timedelta(seconds=3))
        self.alive = [self._start() for _ in range(3)]
        self.stopped: list[PodProcess] = []
        self.disturbed: set[int] = set()

    def _start(self) -> PodProcess:
        return self._pods.start(QUEUES, self._settings)

    async def strike(self, ledger: Path) -> None:
        """Kill, freeze or stop one pod that has begun to run jobs, and replace it."""
        victim = self.alive.pop(self._rng.randrange(len(self.alive)))
        await wait_until(
            partial(_has_run, ledger, victim.process_id), description="the next victim runs jobs"
        )
        deed = self._rng.choice(["kill", "freeze", "stop"])
        if deed == "kill":
            self.disturbed.add(victim.process_id)
            victim.kill()
        elif deed == "stop":
            victim.send(signal.SIGTERM)
            self.stopped.append(victim)
        else:
            self.disturbed.add(victim.process_id)
            await victim.freeze()
            others = [pod.process_id for pod in self.alive]
            await wait_until(
                partial(_runs_more, ledger, others, _count(ledger, others)),
                description="the others go on",
            )
            victim.send(signal.SIGCONT)
            self.alive.append(victim)
            return
        self.alive.append(self._start())


def _count(ledger: Path, process_ids: list[int]) -> int:
    return sum(run.process_id in process_ids for run in Ledger.read(ledger).runs)


def _has_run(ledger: Path, process_id: int) -> bool:
    return _count(ledger, [process_id]) > 0


def _runs_more(ledger: Path, process_ids: list[int], than: int) -> bool:
    return _count(ledger, process_ids) > than + 20


async def test_nothing_is_lost_and_only_what_was_disturbed_runs_again(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    print(f"FORGE_CHAOS_SEED={SEED}")
    rng = random.Random(SEED)
    chaos = Chaos(pods, rng)
    accepted: set[str] = set()
    for _ in range(ROUNDS):
        requests = [
            EnqueueRequest(
                "ledger.work",
                {"ledger": str(ledger), "seconds": rng.choice([0.001, 0.01, 0.05, 0.2])},
                queue="work",
                priority=rng.choice([-1, 0, 0, 1]),
                max_attempts=1_000,
            )
            for _ in range(rng.randrange(100, 200))
        ]
        accepted |= {outcome.job_id for outcome in await client.enqueue_many(requests)}
        await chaos.strike(ledger)
    await wait_until(
        partial(_all_done, storage, len(accepted)), description="every job is done", timeout=60
    )

    ran = Ledger.read(ledger)
    assert ran.ended() == accepted
    newest = {
        job_id: max(run.token for run in ran.runs if run.job_id == job_id)
        for job_id in ran.repeated()
    }
    repeated = [run for run in ran.runs if run.token < newest.get(run.job_id, 0)]
    assert {run.process_id for run in repeated} <= chaos.disturbed
    assert [await pod.wait() for pod in chaos.stopped] == [0] * len(chaos.stopped)
    counts = await _counters(storage)
    assert counts["enqueued"] == counts["succeeded"] == len(accepted)
    ends = ("succeeded", "crashed", "released", "interrupted")
    assert counts["claimed"] == sum(counts[end] for end in ends)


async def _all_done(storage: Storage, jobs: int) -> bool:
    counts = (await storage.jobs.counts(["work"]))["work"].by_status
    return counts.get(JobStatus.DONE, 0) == jobs


async def _counters(storage: Storage) -> Counter[str]:
    now = await storage.cron.now()
    day = timedelta(days=1)
    total: Counter[str] = Counter()
    for bucket in await storage.jobs.metrics("work", now - day, now + day):
        total.update(bucket.counts)
    return total
