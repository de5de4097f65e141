"""Queues that a pod begins and ends to serve while it runs."""

import asyncio
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, QueueRuntime, QueueSettings
from forge_jobs.clock import ManualClock
from forge_jobs.errors import ConfigError, Conflict, InvalidInput, Unavailable
from forge_jobs.runtime.passes.patterns import PatternQueues
from forge_jobs.storage.protocols import Storage
from tests.support.factories import enqueue_one, only
from tests.support.runtimes import quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Stage:
    """A handler that ends at once, and one that waits for the test."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.started, self.go_on = anyio.Event(), anyio.Event()

        @self.handlers.job("works")
        async def works() -> str:
            return "done"

        @self.handlers.job("waits")
        async def waits() -> str:
            self.started.set()
            await self.go_on.wait()
            return "waited"


@pytest.fixture
def stage() -> Stage:
    return Stage()


def a_runtime(storage: Storage, stage: Stage, **settings: Any) -> QueueRuntime:
    return QueueRuntime(storage, stage.handlers, settings=quick_settings(**settings))


async def declared(storage: Storage) -> set[str]:
    [state] = await storage.procs.pods()
    return set(state.pod.queues)


async def test_a_queue_that_is_added_runs_its_jobs(storage: Storage, stage: Stage) -> None:
    async with a_runtime(storage, stage).with_queues("first").start() as handle:
        outcome = await handle.enqueue(EnqueueRequest("works", {}, queue="later"))

        with anyio.fail_after(50):
            await handle.add_queue("later", 3)

        assert handle.queues == ("first", "later")
        assert await declared(storage) == {"first", "later"}
        assert await handle.result(outcome.job_id, timeout=50) == "done"
        settings = {each.name: each.settings for each in await storage.config.queues()}
        assert settings["later"].max_workers == 3
        assert "later" in handle.health().queues
        report = await handle.stop()
    assert report.exit_code == 0
    assert await storage.procs.pods() == []


async def test_an_operators_number_wins_over_that_of_a_queue_added_later(
    storage: Storage, stage: Stage
) -> None:
    await storage.config.ensure_queue("later", QueueSettings(max_workers=1))
    async with a_runtime(storage, stage).with_queues("first").start() as handle:
        await handle.add_queue("later", QueueSettings(max_workers=2))
        await handle.add_queue("later", QueueSettings(max_workers=5))
    settings = {each.name: each.settings for each in await storage.config.queues()}
    assert settings["later"].max_workers == 5


async def test_a_queue_that_is_removed_lets_its_jobs_end_and_starts_no_other(
    storage: Storage, stage: Stage
) -> None:
    async with a_runtime(storage, stage).with_queues("first", "second").start() as handle:
        running = await handle.enqueue(EnqueueRequest("waits", {}, queue="second"))
        await stage.started.wait()

        removal = asyncio.ensure_future(handle.remove_queue("second"))
        await wait_until(
            lambda: handle._pod.queues["second"].leaves, description="the queue is about to go"
        )
        waiting = await handle.enqueue(EnqueueRequest("works", {}, queue="second"))
        assert await declared(storage) == {"first", "second"}, "a slot without its pod"
        stage.go_on.set()
        await removal

        assert await handle.result(running.job_id, timeout=50) == "waited"
        assert handle.queues == ("first",)
        assert await declared(storage) == {"first"}
        counts = (await storage.jobs.counts(["second"]))["second"].by_status
        assert (counts["pending"], counts["done"], counts["in_progress"]) == (1, 1, 0)

        await handle.add_queue("second")
        assert await handle.result(waiting.job_id, timeout=50) == "done"
    assert handle.health().lost_claims == 0


async def test_a_pod_that_registers_again_declares_its_queues_of_now(
    storage: Storage, stage: Stage
) -> None:
    async with a_runtime(storage, stage).with_queues("first", "second").start() as handle:
        await handle.add_queue("later", 2)
        await handle.remove_queue("second")
        await storage.procs.unregister(handle._pod.services.lease)

        await wait_until(
            lambda: _has_declared(storage, {"first", "later"}), description="it is back"
        )
        outcome = await handle.enqueue(EnqueueRequest("works", {}, queue="later"))
        assert await handle.result(outcome.job_id, timeout=50) == "done"


async def _has_declared(storage: Storage, queues: set[str]) -> bool:
    states = await storage.procs.pods()
    return [set(each.pod.queues) for each in states] == [queues]


async def test_a_queue_that_leaves_is_added_again_once_it_has_left(
    storage: Storage, stage: Stage
) -> None:
    async with a_runtime(storage, stage).with_queues("first", "second").start() as handle:
        await handle.enqueue(EnqueueRequest("waits", {}, queue="second"))
        await stage.started.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(handle.remove_queue("second"))
            await wait_until(
                lambda: handle._pod.queues["second"].leaves, description="the queue leaves"
            )
            group.create_task(handle.add_queue("second"))
            stage.go_on.set()
        assert await declared(storage) == {"first", "second"}


async def test_a_pod_with_a_limit_shares_it_with_a_queue_added_later(
    storage: Storage, stage: Stage
) -> None:
    runtime = QueueRuntime(storage, stage.handlers, settings=quick_settings(), concurrency=1)
    async with runtime.with_queues(first=2).start() as handle:
        await handle.enqueue(EnqueueRequest("waits", {}, queue="first"))
        await stage.started.wait()
        await handle.add_queue("later", 2)
        outcome = await handle.enqueue(EnqueueRequest("works", {}, queue="later"))
        later = handle._pod.queues["later"].pool
        await wait_until(lambda: later.grant, description="it has a slot")
        assert handle._pod.running() == 1
        stage.go_on.set()
        assert await handle.result(outcome.job_id, timeout=50) == "done"


async def test_a_pod_that_stops_refuses_a_change_of_its_queues(
    storage: Storage, stage: Stage
) -> None:
    async with a_runtime(storage, stage).with_queues("first").start() as handle:
        await handle.drain(0)
        with pytest.raises(ConfigError, match="the pod stops"):
            await handle.add_queue("later")
        with pytest.raises(ConfigError, match="the pod stops"):
            await handle.remove_queue("first")


async def test_wrong_names_and_numbers_change_nothing(storage: Storage, stage: Stage) -> None:
    async with a_runtime(storage, stage).with_queues("first").start() as handle:
        with pytest.raises(InvalidInput, match="white space"):
            await handle.add_queue("a b")
        with pytest.raises(ConfigError, match="queue later"):
            await handle.add_queue("later", -1)
        with pytest.raises(InvalidInput):
            await handle.remove_queue("")
        await handle.remove_queue("unknown")
        assert handle.queues == ("first",)


# -- patterns ----------------------------------------------------------------------------------


async def test_a_queue_that_appears_is_served_by_its_pattern(
    storage: Storage, stage: Stage
) -> None:
    runtime = a_runtime(storage, stage).with_patterns(**{"tenant-[ab]*": 2, "other-*": None})
    async with runtime.start() as handle:
        assert not handle.queues
        await enqueue_one(storage, queue="tenant-c", kind="works")
        outcomes = [
            await handle.enqueue(EnqueueRequest("works", {}, queue=name))
            for name in ("tenant-a1", "tenant-b", "other-7")
        ]
        for outcome in outcomes:
            assert await handle.result(outcome.job_id, timeout=50) == "done"
        assert handle.queues == ("other-7", "tenant-a1", "tenant-b")
        settings = {each.name: each.settings.max_workers for each in await storage.config.queues()}
        assert settings == {"other-7": 1, "tenant-a1": 2, "tenant-b": 2, "tenant-c": 1}


async def test_a_queue_that_the_program_adds_is_not_left_by_a_pattern(
    storage: Storage, stage: Stage
) -> None:
    runtime = a_runtime(storage, stage, queue_idle=timedelta(seconds=0.05))
    async with runtime.with_patterns("tenant-*").start() as handle:
        # Empty for longer than the other, which is left.
        await handle.add_queue("tenant-named")
        outcome = await handle.enqueue(EnqueueRequest("works", {}, queue="tenant-1"))
        assert await handle.result(outcome.job_id, timeout=50) == "done"
        await wait_until(
            lambda: handle.queues == ("tenant-named",), description="the other was left"
        )


async def test_pods_that_serve_by_a_pattern_do_not_keep_each_other_at_an_empty_queue(
    storage: Storage, stage: Stage
) -> None:
    first = a_runtime(storage, stage, queue_idle=timedelta(seconds=0.05)).with_patterns("t-*")
    second = a_runtime(storage, stage).with_queues("own").with_patterns("t-*")
    async with first.start() as leaving, second.start() as staying:
        outcome = await leaving.enqueue(EnqueueRequest("works", {}, queue="t-1"))
        assert await leaving.result(outcome.job_id, timeout=50) == "done"
        await staying.add_queue("t-1")
        await wait_until(lambda: not leaving.queues, description="the first pod leaves")
        for _ in range(3):
            await leaving._pod.loops._patterns.look_once()
            assert not leaving.queues
        waiting = await leaving.enqueue(EnqueueRequest("waits", {}, queue="t-1"))
        await wait_until(lambda: leaving.queues, description="the first pod serves it again")
        stage.go_on.set()
        assert await leaving.result(waiting.job_id, timeout=50) == "waited"


@pytest.mark.parametrize("reply_is_lost", [False, True])
async def test_calls_that_fail_delay_a_queue_and_lose_none(
    storage: Storage, stage: Stage, monkeypatch: pytest.MonkeyPatch, reply_is_lost: bool
) -> None:
    async with a_runtime(storage, stage).with_queues("first").start() as handle:
        real, failures = type(storage.procs).change_queues, iter(range(3))

        async def failing(self: Any, *arguments: Any) -> bool:
            if next(failures, None) is None:
                return await real(self, *arguments)
            if reply_is_lost:
                await real(self, *arguments)
            raise Unavailable("as planted")

        monkeypatch.setattr(type(storage.procs), "change_queues", failing)
        with anyio.fail_after(50):
            await handle.add_queue("later", 2)
        outcome = await handle.enqueue(EnqueueRequest("works", {}, queue="later"))
        assert await handle.result(outcome.job_id, timeout=50) == "done"
        await handle.remove_queue("later")
        assert await declared(storage) == {"first"}
    if not reply_is_lost:
        assert next(failures, None) is None, "the calls did not fail"


async def test_an_empty_queue_is_left_deleted_and_served_again(
    storage: Storage, stage: Stage
) -> None:
    runtime = a_runtime(storage, stage, queue_idle=timedelta(seconds=0.05))
    async with runtime.with_queues("tenant-mine").with_patterns("tenant-*").start() as handle:
        first = await handle.enqueue(EnqueueRequest("works", {}, queue="tenant-1"))
        assert await handle.result(first.job_id, timeout=50) == "done"
        await wait_until(
            lambda: _has_declared(storage, {"tenant-mine"}), description="the queue was left"
        )
        await storage.jobs.delete(only(first.job_id))
        await storage.config.delete_queue("tenant-1")

        again = await handle.enqueue(EnqueueRequest("works", {}, queue="tenant-1"))
        assert await handle.result(again.job_id, timeout=50) == "done"


class Served:
    """Queues that a pod would serve."""

    def __init__(self) -> None:
        self.names: dict[str, int | None] = {}
        self.is_refused = False

    def activity(self, name: str) -> int | None:
        return self.names[name]

    async def include(self, queues: dict[str, Any]) -> None:
        if self.is_refused:
            raise Unavailable("as planted")
        self.names |= dict.fromkeys(queues, 0)

    def exclude(self, name: str) -> None:
        del self.names[name]


async def test_a_queue_is_left_once_it_has_been_empty_for_the_whole_time(
    manual_storage: Storage,
) -> None:
    clock, served = ManualClock(), Served()
    looks = PatternQueues(
        manual_storage,
        served,  # type: ignore[arg-type] # dicts where a mapping is asked for
        {"t-*": None},
        idle_after=timedelta(minutes=10),
        clock=clock,
    )
    served.names = {"t-own": None, "else": None}
    job_id = await enqueue_one(manual_storage, queue="t-1")
    served.is_refused = True
    with pytest.raises(Unavailable):
        await looks.look_once()
    served.is_refused = False
    await looks.look_once()
    assert served.names.keys() == {"t-own", "else", "t-1"}

    async def passes(minutes: float, activity: int | None = 0) -> bool:
        clock.advance(timedelta(minutes=minutes))
        served.names["t-1"] = activity
        await looks.look_once()
        return "t-1" in served.names

    assert await passes(1)
    assert await passes(11), "a job waits"
    await manual_storage.jobs.delete(only(job_id))
    assert await passes(0.1, activity=None), "a job runs"
    assert await passes(9, activity=1)
    assert await passes(9, activity=2), "it was asked for jobs meanwhile"
    assert await passes(9.9, activity=2)
    assert not await passes(0.2, activity=2)
    assert served.names.keys() == {"t-own", "else"}


async def test_a_queue_that_a_pod_serves_by_its_pattern_says_when_it_can_be_deleted(
    storage: Storage, stage: Stage
) -> None:
    async with a_runtime(storage, stage).with_queues("first").start():
        with pytest.raises(Conflict, match="by a pattern"):
            await storage.config.delete_queue("first")


async def test_a_runtime_without_queues_and_patterns_is_refused(
    storage: Storage, stage: Stage
) -> None:
    with pytest.raises(ConfigError, match="no queue is declared"):
        a_runtime(storage, stage).start()
    with pytest.raises(InvalidInput):
        a_runtime(storage, stage).with_patterns("")
    with pytest.raises(ConfigError, match="max_workers"):
        a_runtime(storage, stage).with_patterns(**{"a-*": -1})
