"""Limits that handlers declare: how many jobs of a key run at once, in pods as they are."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, JobClient, Limit
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.policy.explanations import Reason
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, job_when
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


class Crawler:
    """The kind ``crawl`` under a limit. Runs last until the test lets them go."""

    def __init__(self, limit: Limit) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.handlers = HandlerRegistry()

        async def crawl(host: str) -> None:
            self.running[host] += 1
            self.most[host] = max(self.most[host], self.running[host])
            await self.go.wait()
            self.running[host] -= 1

        self.crawl = self.handlers.register(crawl, "crawl", concurrency=limit)


async def test_two_pods_run_as_many_jobs_of_a_host_as_the_limit_says(storage: Storage) -> None:
    crawler = Crawler(Limit(2, key="{host}"))
    async with AsyncExitStack() as pods:
        handle, _ = [
            await pods.enter_async_context(a_runtime(storage, crawler.handlers, 8).start())
            for _ in range(2)
        ]
        requests = [crawler.crawl.request(host) for host in "aaaaabbbbbc"]
        outcomes = await handle.enqueue_many(requests)

        async def all_that_may() -> bool:
            return crawler.running == {"a": 2, "b": 2, "c": 1}

        await wait_until(all_that_may, description="two of each host run")
        crawler.go.set()
        for outcome in outcomes:
            await job_when(storage, outcome.job_id, JobStatus.DONE)
    assert crawler.most == {"a": 2, "b": 2, "c": 1}


async def test_a_waiting_job_is_explained_by_its_limit(storage: Storage) -> None:
    crawler = Crawler(Limit(1, name="hosts"))
    async with a_runtime(storage, crawler.handlers, 4).start() as handle:
        outcomes = [await handle.enqueue(crawler.crawl.request(host)) for host in "ab"]

        async def is_held() -> bool:
            jobs = await storage.jobs.get([each.job_id for each in outcomes])
            return any(job.hold is Hold.LIMIT for job in jobs.values())

        await wait_until(is_held, description="one job waits for the other")
        client = JobClient(storage)
        told = [await client.explain(each.job_id) for each in outcomes]
        [waits] = [each for each in told if each.reason is Reason.LIMITED]
        assert "the limit 'hosts': 1 job may run at once" in waits.text
        crawler.go.set()
        for outcome in outcomes:
            await job_when(storage, outcome.job_id, JobStatus.DONE)


async def test_an_operators_number_holds_in_the_running_pods(storage: Storage) -> None:
    crawler = Crawler(Limit(1, key="{host}"))
    async with a_runtime(storage, crawler.handlers, 8).start() as handle:
        for _ in range(4):
            await handle.enqueue(crawler.crawl.request("a"))

        async def one() -> bool:
            return crawler.running["a"] == 1

        async def three() -> bool:
            return crawler.running["a"] == 3

        await wait_until(one, description="one job runs")
        await storage.config.set_limit("default", "crawl", 3)
        await wait_until(three, description="three jobs run")
        crawler.go.set()


async def test_a_request_may_name_its_key(storage: Storage) -> None:
    crawler = Crawler(Limit(1, key="{host}"))
    async with a_runtime(storage, crawler.handlers, 4).start() as handle:
        for host in "abc":
            await handle.enqueue(crawler.crawl.request(host), concurrency_key="proxy 1")
        plain = EnqueueRequest("crawl", {"host": "d"})
        await handle.enqueue(plain)

        async def two() -> bool:
            return sum(crawler.running.values()) == 2

        await wait_until(two, description="one job of the key runs, and one of a host")
        assert crawler.running["d"] == 1
        crawler.go.set()
