"""Requests to a pod, and how soon they are there and answered: ``python -m bench.pod_requests``.

Asks a pod in another process for stacks, to be quiet and to resume, in turn, and at last to stop.
Prints how many requests the pod heard within a second and answered within five, and the longest
and the middle time to both. All instants are the store's own. The pod is idle, or drains a queue
all the time, or a handler blocks the event loop, where only stacks are asked for.
"""

import argparse
import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from bench.child import loop_factory
from bench.figures import percentile
from bench.stores import KINDS
from forge_jobs import HandlerRegistry, JobClient, QueueRuntime, QueueSettings, open_storage
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.pod_requests import (
    ANSWERED_WITHIN,
    MOST_REQUESTS,
    PodRequest,
    PodVerb,
    RequestState,
)
from forge_jobs.storage.protocols import Storage

THERE_WITHIN = timedelta(seconds=1)
QUEUE = "bench"
MODES = ("idle", "draining", "blocked")
_VERBS = (PodVerb.STACKS, PodVerb.QUIET, PodVerb.RESUME)
_LOOK_S = 0.05
_WARM_UP_S = 2.0
# One more would be refused.
_BETWEEN_S = ANSWERED_WITHIN.total_seconds() / MOST_REQUESTS
_BLOCKED_S = 3_600.0
_BACKLOG, _PORTION = 2_000, 200


# -- the pod -----------------------------------------------------------------------------------


async def serve(url: str, mode: str) -> None:
    """Run a pod until a request stops the pod."""
    handlers = HandlerRegistry()
    ran = 0

    @handlers.job("bench.noop", queue=QUEUE, keep_result=False)
    async def noop(n: int) -> None:
        nonlocal ran
        ran += 1

    @handlers.job("bench.block", queue=QUEUE)
    async def block() -> None:
        _say_ready()
        time.sleep(_BLOCKED_S)  # noqa: ASYNC251  what is tried

    async def feed(client: JobClient) -> None:
        sent = 0
        while True:
            if sent - ran < _BACKLOG:
                await client.enqueue_many([noop.request(n) for n in range(_PORTION)])
                sent += _PORTION
            await asyncio.sleep(0.01)

    async with await open_storage(url) as storage, JobClient(storage, handlers) as client:
        runtime = QueueRuntime(storage, handlers)
        running = asyncio.create_task(
            runtime.with_queues(**{QUEUE: QueueSettings(max_workers=100)}).run()
        )
        if mode == "blocked":
            await client.enqueue(block.request())
        else:
            _say_ready()
        feeding = asyncio.create_task(feed(client)) if mode == "draining" else None
        await running
        if feeding is not None:
            feeding.cancel()


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


@contextmanager
def serving(url: str, mode: str) -> Iterator[None]:
    """A pod in a separate process, killed at the end where no request has stopped the pod."""
    command = [sys.executable, "-m", "bench.pod_requests", "--serve", url, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


# -- the operator ------------------------------------------------------------------------------


async def _pod(storage: Storage) -> HostId:
    while True:
        live = [each.pod.host_id for each in await storage.procs.pods() if each.lease_remaining]
        if live:
            return live[0]
        await asyncio.sleep(_LOOK_S)


async def _asked(storage: Storage, pod: HostId, verb: PodVerb) -> PodRequest:
    request = await storage.procs.ask_pod(pod, verb, request_id=new_job_id(), asked_by="bench")
    while request.state in (RequestState.WAITING, RequestState.HEARD):
        await asyncio.sleep(_LOOK_S)
        request = await storage.procs.pod_request(request.id)
    return request


async def _ask(storage: Storage, mode: str, count: int) -> list[PodRequest]:
    pod = await _pod(storage)
    await asyncio.sleep(_WARM_UP_S)
    wanted = (
        [PodVerb.STACKS] * count
        if mode == "blocked"
        else [*itertools.islice(itertools.cycle(_VERBS), count)]
    )
    found: list[PodRequest] = []
    for verb in wanted:
        found.append(await _asked(storage, pod, verb))
        await asyncio.sleep(_BETWEEN_S)
    if mode != "blocked":
        found.append(await _asked(storage, pod, PodVerb.STOP))
    return found


def told(asked: Sequence[PodRequest]) -> str:
    """Return how many were in time, and how long they took."""
    heard = [_since(each, each.heard_at) for each in asked if each.heard_at is not None]
    answered = [_since(each, each.answered_at) for each in asked if each.answered_at is not None]
    there = sum(took <= THERE_WITHIN.total_seconds() for took in heard)
    in_time = sum(took <= ANSWERED_WITHIN.total_seconds() for took in answered)
    return (
        f"{len(asked)} requests: {there} there within 1 s{_times(heard)}, "
        f"{in_time} answered within 5 s{_times(answered)}"
    )


def _since(request: PodRequest, at: datetime) -> float:
    return (at - request.asked_at).total_seconds()


def _times(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    p50, p99, most = (
        1_000 * each for each in (median(seconds), percentile(seconds, 0.99), max(seconds))
    )
    return f" (p50 {p50:.0f}, p99 {p99:.0f}, most {most:.0f} ms)"


async def run(options: argparse.Namespace) -> None:
    """Ask a pod of each store in each mode."""
    for kind, mode in itertools.product(options.stores.split(","), MODES):
        with tempfile.TemporaryDirectory() as folder:
            async with KINDS[kind](Path(folder)) as store:
                url = await store.fresh()
                async with await open_storage(url) as storage:
                    with serving(url, mode):
                        asked = await _ask(storage, mode, options.requests)
                    print(f"{kind:<9} {mode:<9} {told(asked)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pod_requests", description=__doc__)
    parser.add_argument("--stores", default="sqlite,postgres,redis")
    parser.add_argument("--requests", type=int, default=60, help="of each pod, one after the other")
    parser.add_argument("--serve", nargs=2, metavar=("URL", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
        runner.run(serve(*options.serve) if options.serve else run(options))


if __name__ == "__main__":
    main()
