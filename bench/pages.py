"""Pages and lists of the dashboard on a large store, beside a drain: ``python -m bench.pages``.

Fills a store with a million finished jobs and 100,000 that wait, in 20 queues and of 50 kinds, and
registers ten pods. Then asks for every page and list many times while another process drains a
queue, and prints p50 and p99, the processor time of this process and of the server, which other
programs of the machine disturb least, the largest answer, and how often each asked the store, with
the calls that took longest.
"""

import argparse
import asyncio
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx

from bench.child import loop_factory
from bench.large_store import DRAINED, fill, queue_names
from bench.stores import KINDS
from bench.usage import tree_cpu_seconds
from forge_jobs import HandlerRegistry, JobClient, QueueRuntime, QueueSettings, open_storage
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard

_BACKLOG, _PORTION = 2_000, 200


# -- the drain ---------------------------------------------------------------------------------


async def drain(url: str) -> None:
    """Enqueue and run jobs until the parent closes the pipe, then say how many a second."""
    handlers = HandlerRegistry()
    ran = 0

    @handlers.job("bench.noop", queue=DRAINED, keep_result=False)
    async def noop(n: int) -> None:
        nonlocal ran
        ran += 1

    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.read)
    async with await open_storage(url) as storage:
        runtime = QueueRuntime(storage, handlers).with_queues(
            **{DRAINED: QueueSettings(max_workers=100)}
        )
        async with runtime.start(), JobClient(storage, handlers) as client:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            began, sent = time.monotonic(), 0
            while not over.done():
                if sent - ran < _BACKLOG:
                    await client.enqueue_many([noop.request(n) for n in range(_PORTION)])
                    sent += _PORTION
                else:
                    await asyncio.sleep(0.01)
            rate = ran / (time.monotonic() - began)
    sys.stdout.write(json.dumps(rate) + "\n")


@contextmanager
def draining(url: str) -> Iterator[list[float]]:
    """A process that drains during the block. The list gets jobs a second after the block."""
    command = [sys.executable, "-m", "bench.pages", "--drain", url]
    rates: list[float] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            process.stdout.readline()
            yield rates
        finally:
            process.stdin.close()
            rates += [float(line) for line in process.stdout]


# -- what is asked -----------------------------------------------------------------------------


class Asked:
    """Asks for one thing after the other, and notes times and calls of the store.

    :param server: the process of the server, to whose processor time all below it is added
    """

    def __init__(self, storage: Storage, times: int, server: int | None) -> None:
        self._times = times
        self._server = server
        self._calls: Counter[str] = Counter()
        self._took: Counter[str] = Counter()
        self.rows: list[tuple[str, float, float, int]] = []
        for view in (storage.jobs, storage.procs, storage.config, storage.cron):
            self._count(view)

    async def ask(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        """Ask so many times."""
        size = 0
        await call()
        times = []
        self._calls.clear()
        self._took.clear()
        used = self._used()
        for _ in range(self._times):
            began = time.perf_counter()
            found = await call()
            times.append(1_000 * (time.perf_counter() - began))
            size = max(size, found if isinstance(found, int) else 0)
        own, server = (
            1_000 * (b - a) / self._times for a, b in zip(used, self._used(), strict=True)
        )
        cut = quantiles(times, n=100, method="inclusive")[98]
        asked = self._calls.total() / self._times
        self.rows.append((name, median(times), cut, int(asked)))
        slowest = ", ".join(
            f"{verb} {1_000 * took / self._times:.0f}" for verb, took in self._took.most_common(4)
        )
        print(
            f"{name:<44} {median(times):9.1f} {cut:9.1f} {own:7.1f} {server:7.1f} "
            f"{size / 1_000:7.1f} {asked:6.1f}  {slowest}",
            flush=True,
        )

    def _used(self) -> tuple[float, float]:
        return time.process_time(), tree_cpu_seconds(self._server) if self._server else 0.0

    def _count(self, view: object) -> None:
        for name in dir(type(view)):
            verb = getattr(view, name, None)
            if not name.startswith("_") and asyncio.iscoroutinefunction(verb):
                setattr(view, name, self._counted(name, verb))

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*given: Any, **more: Any) -> Any:
            self._calls[name] += 1
            began = time.perf_counter()
            try:
                return await verb(*given, **more)
            finally:
                self._took[name] += time.perf_counter() - began  # type: ignore[assignment]

        return call


def pages(
    job: str, pod: str, now: datetime, *, queue: str = "q03", kind: str = "kind.07"
) -> Sequence[str]:
    """Return every page and list of the dashboard."""
    recent = (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%MZ")
    return (
        "/",
        "/jobs",
        "/jobs?q=status:dead",
        "/jobs?q=status:failed",
        "/jobs?q=status:in_progress",
        f"/jobs?q=queue:{queue}",
        f"/jobs?q=queue:{queue} status:pending",
        f"/jobs?q=kind:{kind}",
        "/jobs?q=tag:t1",
        f"/jobs?q=kind:{kind} status:done",
        f"/jobs?q=finished:>{recent}",
        "/jobs?q=payload.n:777",
        f"/jobs/{job}",
        "/errors",
        "/queues",
        f"/queues/{queue}",
        "/pods",
        f"/pods/{pod}",
        "/cron",
        "/limits",
        "/store",
        "/audit",
        "/metrics",
        "/api/v1/queues",
        "/api/v1/jobs/count?q=status:done",
        "/api/v1/jobs/count?q=status:pending",
        f"/api/v1/jobs/count?q=kind:{kind}",
        f"/api/v1/jobs/count?q=queue:{queue} tag:t1",
        "/api/v1/jobs?limit=1000",
        "/api/v1/problems",
        "/api/v1/pods",
    )


async def measure(
    url: str, times: int, only: str, server: int | None = None
) -> list[tuple[str, float, float, int]]:
    """Ask for everything and return name, p50, p99, calls of the store."""
    async with await open_storage(url) as storage:
        page = await storage.jobs.list(JobFilter(queues=("q03",), statuses=(JobStatus.DONE,)))
        pod = (await storage.procs.pods())[0].pod.host_id
        now = await storage.cron.now()
        asked = Asked(storage, times, server)
        calls = {
            "store: counts()": storage.jobs.counts,
            "store: counts([one])": lambda: storage.jobs.counts(["q03"]),
            "store: flow_totals()": storage.jobs.flow_totals,
        }
        for name, call in calls.items():
            if only in name:
                await asked.ask(name, call)
        async with _client(storage) as client:
            for path in pages(page.jobs[0].id, pod, now):
                if only in path:
                    await asked.ask(path, functools.partial(_get, client, path))
        return asked.rows


@asynccontextmanager
async def _client(storage: Storage) -> AsyncIterator[httpx.AsyncClient]:
    access = Access(actions=frozenset({"*"}), payloads=True)
    app = dashboard(storage, authorize=lambda _: Actor(name="bench", access=access))
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def _get(client: httpx.AsyncClient, path: str) -> int:
    answer = await client.get(path)
    if answer.status_code != 200:
        raise ValueError(f"{path}: {answer.status_code} {answer.text[:300]}")
    return len(answer.content)


# -- all of it ---------------------------------------------------------------------------------


async def run(options: argparse.Namespace) -> None:
    """Fill and measure each store."""
    if options.url:
        await _on(options.url, options)
        return
    for kind in options.stores.split(","):
        with tempfile.TemporaryDirectory() as folder:
            async with KINDS[kind](Path(folder)) as store:
                await _on(await store.fresh(), options)


async def _on(url: str, options: argparse.Namespace) -> None:
    began = time.monotonic()
    await fill(url, finished=options.finished, waiting=options.waiting)
    if url.startswith("postgres"):
        # As autovacuum does some time later.
        connection = await asyncpg.connect(urlsplit(url)._replace(query="").geturl())
        await connection.execute("VACUUM (ANALYZE)")
        await connection.close()
    filled = time.monotonic() - began
    print(f"\n{url.partition(':')[0]}: {options.finished:,} finished, {options.waiting:,} waiting,")
    print(f"{len(queue_names())} queues, filled in {filled:.0f} s")
    print(
        f"{'':<44} {'p50, ms':>9} {'p99, ms':>9} {'CPU, ms':>7} {'server':>7} {'kB':>7} "
        f"{'calls':>6}  longest calls, ms"
    )
    if options.alone:
        await measure(url, options.times, options.only, options.server)
        return
    with draining(url) as rates:
        await measure(url, options.times, options.only, options.server)
    print(f"the drain beside: {rates[0]:,.0f} jobs a second" if rates else "the drain failed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--stores", default="sqlite,postgres,redis")
    parser.add_argument("--url", help="a store that is filled already, or is to be filled")
    parser.add_argument("--server", type=int, help="the process of the server behind --url")
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=100, help="how often each is asked")
    parser.add_argument("--only", default="", help="what has this in the name")
    parser.add_argument("--alone", action="store_true", help="no drain beside")
    parser.add_argument("--drain", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
        runner.run(drain(options.drain) if options.drain else run(options))


if __name__ == "__main__":
    main()
