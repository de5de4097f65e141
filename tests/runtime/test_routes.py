"""All routers of one request decide the same."""

import logging

import pytest

from forge_jobs.clients.blocking import SyncJobClient
from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.routing import Router, prefix_router
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import ended, quick_settings

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


def two_kinds() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("gh.sync", aliases=["old.sync"])
    async def sync() -> None: ...

    @handlers.job("gh.index", queue="slow")
    async def index() -> None: ...

    return handlers


@pytest.mark.parametrize("router", [None, prefix_router()], ids=["none", "prefix"])
async def test_a_pod_and_a_client_without_its_code_hold_one_unique_key(
    storage: Storage, router: Router | None
) -> None:
    runtime = QueueRuntime(storage, two_kinds(), settings=quick_settings(), router=router)
    for queue in ("gh", "slow", "default"):
        runtime.with_queues(**{queue: 1})
    async with runtime.start() as handle, await storage.reopen() as other:
        client = JobClient(other)
        for kind in ("gh.sync", "old.sync", "gh.index"):
            request = EnqueueRequest(kind, unique_key=kind, delay=3600)
            first = await handle.enqueue(request)
            assert (await client.enqueue(request)).deduplicated
            with SyncJobClient(storage.reopen) as blocking:
                assert blocking.enqueue(request).deduplicated
            await handle.client.run_now(first.job_id)
            job = await ended(storage, first.job_id)
            assert job.queue == await client.queue_of(kind)


async def test_the_declared_queues_of_a_pod_route_nothing(storage: Storage) -> None:
    handlers = two_kinds()
    runtime = QueueRuntime(storage, handlers, settings=quick_settings()).with_queues(gh=1)
    async with runtime.start() as handle:
        assert await handle.client.queue_of("gh.sync") == "default"


@pytest.mark.parametrize("count", [0, 7])
async def test_a_pod_that_no_job_can_reach_says_so(
    storage: Storage, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    handlers = HandlerRegistry()
    for number in range(count):
        handlers.register(lambda: None, f"kind.{number}")
    runtime = QueueRuntime(storage, handlers, settings=quick_settings()).with_queues(gh=1)
    async with runtime.start():
        pass
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    if count:
        assert "serves gh" in record.message
        assert "kind.4, 2 more" in record.message
        assert "default" in record.message
    else:
        assert "the registry has no handlers" in record.message


async def test_a_pod_that_jobs_reach_warns_of_nothing(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = QueueRuntime(
        storage, two_kinds(), settings=quick_settings(), router=prefix_router()
    ).with_queues(gh=1)
    async with runtime.start():
        pass
    assert [each for each in caplog.records if each.levelno == logging.WARNING] == []


async def test_a_pattern_that_was_given_for_a_queue_is_told(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    handlers.register(lambda: None, "work", queue="tenant-*")
    runtime = QueueRuntime(storage, handlers, settings=quick_settings())
    async with runtime.with_queues("tenant-*").start():
        pass
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "named 'tenant-*', and no other whose name matches" in record.message
    assert "FORGE_QUEUE_PATTERNS" in record.message


async def test_a_pattern_that_is_given_to_a_running_pod_as_a_queue_is_told_once(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    handlers.register(lambda: None, "work", queue="mail")
    runtime = QueueRuntime(storage, handlers, settings=quick_settings())
    async with runtime.with_queues("mail").start() as handle:
        for _ in range(2):
            await handle.add_queue("tenant-*")
        assert "tenant-*" in handle.queues
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "named 'tenant-*', and no other whose name matches" in record.message
    assert "with_patterns" in record.message


async def test_a_pod_with_a_pattern_expects_requests_that_name_their_queue(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    handlers.register(lambda: None, "work")
    runtime = QueueRuntime(storage, handlers, settings=quick_settings())
    async with runtime.with_patterns("tenant-*").start():
        pass
    assert [each for each in caplog.records if each.levelno == logging.WARNING] == []
