"""An action on many jobs beside a drain: ``python -m bench.large_action``.

Prints what a drain keeps of the pace while a driver cancels 100,000 waiting jobs: the driver works
and is stopped in turn, two seconds each, and windows with work are compared with those beside them.
Then requeues the same jobs by drivers that are killed at ten random instants, and checks that each
job was changed once and that the counters are exact.
"""

import argparse
import asyncio
import itertools
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median

from bench.child import loop_factory
from bench.large_store import DRAINED, queue_names
from bench.pages import draining
from bench.stores import KINDS
from forge_jobs import open_storage
from forge_jobs.model.actions import Action, ActionRecord, ActionState
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage

_WINDOW_S, _WARM_UP_S = 2.0, 10.0
_LIVES_S = (0.2, 3.0)
_AT_ONCE = 1_000
_DAY = timedelta(days=1)


async def drive(url: str, action_id: str) -> None:
    """Take all steps of an action, in a separate process."""
    async with (
        await open_storage(url) as storage,
        Operator(storage, Actor(name="bench", access=ALL)) as operator,
    ):
        sys.stdout.write("driving\n")
        sys.stdout.flush()
        await operator.continue_action(action_id)


def _driver(url: str, action_id: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.large_action", "--drive", url, action_id]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    driver.stdout.readline()
    return driver


async def _begun(storage: Storage, verb: str, queues: Sequence[str]) -> str:
    action = Action(
        id=new_job_id(),
        actor="bench",
        surface="code",
        verb=verb,
        which=JobFilter(),
        queues=tuple(queues),
    )
    await storage.jobs.put_action(action)
    return action.id


async def _counted(storage: Storage, queue: str, name: str) -> int:
    now = await storage.cron.now()
    minutes = await storage.jobs.metrics(queue, now - _DAY, now + _DAY)
    return sum(each.counts.get(name, 0) for each in minutes)


def _changed(record: ActionRecord) -> int:
    return sum(part.changed for part in record.parts)


async def _pace(storage: Storage, seconds: float) -> float:
    began, before = time.monotonic(), await _counted(storage, DRAINED, "succeeded")
    await asyncio.sleep(seconds)
    after = await _counted(storage, DRAINED, "succeeded")
    return (after - before) / (time.monotonic() - began)


async def _beside_a_drain(storage: Storage, url: str, queues: Sequence[str]) -> None:
    with draining(url):
        await asyncio.sleep(_WARM_UP_S)
        action_id = await _begun(storage, "cancel_jobs", queues)
        driver = _driver(url, action_id)
        # The first steps follow each other at once.
        await asyncio.sleep(_WINDOW_S)
        acting, still, worked = [], [], _WINDOW_S
        while driver.poll() is None:
            acting.append(await _pace(storage, _WINDOW_S))
            worked += _WINDOW_S
            driver.send_signal(signal.SIGSTOP)
            still.append(await _pace(storage, _WINDOW_S))
            driver.send_signal(signal.SIGCONT)
    # Each window between two others, because a machine is not as fast all the time.
    pairs = zip(acting[1:], itertools.pairwise(still), strict=False)
    kept = [2 * during / sum(beside) for during, beside in pairs]
    if not kept:
        print("the action was over before anything could be compared", flush=True)
        return
    print(
        f"drain beside the action {median(acting):,.0f}, without {median(still):,.0f} jobs/s, "
        f"{median(kept):.2f} of {len(kept)} windows, {sum(acting) / sum(still):.2f} of all jobs, "
        f"the action took {worked:.0f} s",
        flush=True,
    )


async def _killed(
    storage: Storage, url: str, queues: Sequence[str], jobs: int, deaths: int
) -> None:
    action_id = await _begun(storage, "requeue_jobs", queues)
    chance, died_at = random.Random(), []
    for _ in range(deaths):
        driver = _driver(url, action_id)
        await asyncio.sleep(chance.uniform(*_LIVES_S))
        driver.kill()
        driver.wait()
        died_at.append(_changed(await storage.jobs.get_action(action_id)))
    await asyncio.to_thread(_driver(url, action_id).wait)
    record = await storage.jobs.get_action(action_id)
    ids: list[str] = []
    while page := await storage.jobs.action_jobs(action_id, beyond=ids[-1] if ids else None):
        ids += page
    requeued = sum([await _counted(storage, queue, "requeued") for queue in queues])
    counts = await storage.jobs.counts(list(queues))
    waiting = sum(each.by_status.get("pending", 0) for each in counts.values())
    is_exact = (
        record.state is ActionState.DONE
        and _changed(record) == len(ids) == len(set(ids)) == requeued == waiting == jobs
    )
    print(f"killed at {', '.join(f'{n:,}' for n in died_at)} changed jobs")
    print(
        f"recorded {_changed(record):,}, listed {len(set(ids)):,} of {len(ids):,} once, counted "
        f"{requeued:,}, waiting {waiting:,}: {'exact' if is_exact else 'NOT EXACT'}",
        flush=True,
    )


async def _on(url: str, jobs: int, deaths: int) -> None:
    queues = queue_names()[:-1]
    print(f"\n{url.partition(':')[0]}: {jobs:,} jobs in {len(queues)} queues", flush=True)
    async with await open_storage(url) as storage:
        for queue in queues:
            await storage.config.set_queue(queue, QueueChange(max_workers=1))
        for first in range(0, jobs, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, jobs))
            requests = [
                NewJob(
                    id=new_job_id(), queue=queues[n % len(queues)], kind="bench.wait", payload="{}"
                )
                for n in numbers
            ]
            for part in range(0, len(requests), storage.jobs.enqueue_at_once):
                await storage.jobs.enqueue(requests[part : part + storage.jobs.enqueue_at_once])
        await _beside_a_drain(storage, url, queues)
        if deaths:
            await _killed(storage, url, queues, jobs, deaths)


async def run(options: argparse.Namespace) -> None:
    """Measure each store."""
    for kind in options.stores.split(","):
        with tempfile.TemporaryDirectory() as folder:
            async with KINDS[kind](Path(folder)) as store:
                await _on(await store.fresh(), options.jobs, options.deaths)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large_action", description=__doc__)
    parser.add_argument("--stores", default="sqlite,postgres,redis")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--deaths", type=int, default=10)
    parser.add_argument("--drive", nargs=2, metavar=("URL", "ACTION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
        runner.run(drive(*options.drive) if options.drive else run(options))


if __name__ == "__main__":
    main()
