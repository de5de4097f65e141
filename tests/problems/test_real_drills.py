"""Drills with real pods. Rules that take longer are judged by a later clock, on one snapshot."""

import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from msgspec import structs

from forge_jobs import (
    After,
    FromStep,
    Group,
    Limit,
    Outbox,
    RateLimited,
    Sequence,
    Unique,
    Workflow,
    group_handlers,
)
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import RateLimit
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.snapshots.reading import read_snapshot
from forge_jobs.policy.judgement.problems import judging
from forge_jobs.policy.judgement.problems.limits import UNKNOWN_RUN
from forge_jobs.policy.judgement.problems.problem import Code, Problem
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.support.drills import asked
from tests.support.outboxes import write_down
from tests.support.runtimes import QUEUE, a_runtime, ended, job_because, job_when, quick_settings
from tests.support.waiting import wait_until
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

AFTER = {rule.code: rule.after for rule in judging.RULES}
IN_TIME = timedelta(seconds=15)


@pytest.fixture
def clock() -> None:
    """The store's own: real pods live by that."""


@asynccontextmanager
async def caller_of(storage: Storage) -> AsyncIterator[httpx.AsyncClient]:
    app = dashboard(storage, authorize=lambda _: Actor(name="ada", access=ALL))
    async with client_of(app) as caller:
        yield caller


async def found(storage: Storage, code: Code, more: timedelta) -> Problem | None:
    """Return the problem among the first three, once its rule can hold and ``more`` has passed."""
    seen = await read_snapshot(storage)
    later = structs.replace(seen, now=seen.now + AFTER[code] + more)
    listed = [each for each in judging.problems(later)[:3] if each.code is code]
    return listed[0] if listed else None


async def seen(storage: Storage, code: Code, more: timedelta = timedelta(0)) -> Problem:
    """Wait until the problem is seen."""

    async def look() -> Problem | None:
        return await found(storage, code, more)

    problem: Problem = await wait_until(look, description=f"{code} is seen")
    return problem


async def gone(storage: Storage, code: Code, more: timedelta = timedelta(0)) -> None:
    """Wait until the problem is not seen any more."""

    async def look() -> bool:
        return await found(storage, code, more) is None

    await wait_until(look, description=f"{code} is gone")


def began(problem: Problem, before: datetime, after: datetime) -> bool:
    """True where the cause began between two instants of the store."""
    return before <= problem.since <= after


async def test_a_paused_queue(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("quick", queue=QUEUE)
    async def quick() -> None: ...

    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        before = await storage.cron.now()
        await asked(caller, "POST", f"/queues/{QUEUE}/pause")
        job_id = (await handle.enqueue(quick.request())).job_id
        problem = await seen(storage, Code.PAUSED_WITH_WORK)
        assert began(problem, before, await storage.cron.now())
        await asked(caller, "POST", f"/queues/{QUEUE}/resume")
        assert (await ended(storage, job_id)).status is JobStatus.DONE
        await gone(storage, Code.PAUSED_WITH_WORK)


async def test_a_queue_whose_pod_stopped(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("quick", queue=QUEUE)
    async def quick() -> None: ...

    async with a_runtime(storage, handlers).start():
        before = await storage.cron.now()
    async with caller_of(storage) as caller:
        await asked(caller, "POST", "/jobs", {"kind": "quick", "queue": QUEUE})
        problem = await seen(storage, Code.UNSERVED_QUEUE)
        assert began(problem, before, await storage.cron.now())
        async with a_runtime(storage, handlers).start():
            await gone(storage, Code.UNSERVED_QUEUE)


async def test_failures_in_a_burst(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("broken", queue=QUEUE, max_attempts=1)
    async def broken() -> None:
        raise OSError("no route to 10.0.0.7")

    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        minute = (await storage.cron.now()).replace(second=0, microsecond=0)
        for _ in range(12):
            await handle.enqueue(broken.request())
        problem = await seen(storage, Code.ERROR_BURST)
        assert began(problem, minute, await storage.cron.now())
        assert "OSError" in problem.evidence
        assert (problem.about, problem.queue) == ("broken", QUEUE)
        await asked(caller, "POST", f"/queues/{QUEUE}/pause")


async def test_a_struck_kind(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("mail", queue=QUEUE)
    async def mail() -> None: ...

    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        before = await storage.cron.now()
        rule = {"kind": "mail", "where": "", "effect": "hold", "reason": "the provider is down"}
        await asked(caller, "PUT", "/strikes/no%20mail", rule)
        ids = [(await handle.enqueue(mail.request())).job_id for _ in range(3)]
        for each in ids:
            await job_because(storage, each, Cause.STRUCK)
        problem = await seen(storage, Code.STRUCK_WITH_WORK)
        assert began(problem, before, await storage.cron.now())
        assert (problem.about, problem.queue, problem.jobs) == ("no mail", QUEUE, 3)
        assert "The strike was set by ada: the provider is down" in problem.why
        assert problem.command == "forge-jobs strikes lift 'no mail'"
        await asked(caller, "DELETE", "/strikes/no%20mail")
        for each in ids:
            assert (await ended(storage, each)).status is JobStatus.DONE
        await gone(storage, Code.STRUCK_WITH_WORK)


async def test_a_kind_that_no_pod_knows(storage: Storage) -> None:
    handlers, newer = HandlerRegistry(), HandlerRegistry()

    @newer.job("new.kind", queue=QUEUE)
    async def new_kind() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        before = await storage.cron.now()
        job_id = (await handle.enqueue(EnqueueRequest("new.kind", {}, queue=QUEUE))).job_id
        problem = await seen(storage, Code.UNKNOWN_KIND)
        assert began(problem, before, await storage.cron.now())
        assert problem.about == "new.kind"
        async with a_runtime(storage, newer).start():
            assert (await ended(storage, job_id)).status is JobStatus.DONE
        await gone(storage, Code.UNKNOWN_KIND)


async def test_a_handler_that_ignores_a_cancel(storage: Storage) -> None:
    handlers = HandlerRegistry()
    may_end = threading.Event()

    @handlers.job("stubborn", queue=QUEUE)
    def stubborn() -> None:
        may_end.wait(60)

    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        job_id = (await handle.enqueue(stubborn.request())).job_id
        try:
            await job_when(storage, job_id, JobStatus.IN_PROGRESS)

            async def runs() -> bool:
                return bool(await storage.procs.workers())

            await wait_until(runs, description="the start is recorded")
            before = await storage.cron.now()
            await asked(caller, "POST", "/jobs/cancel", {"ids": [job_id]})
            problem = await seen(storage, Code.CANCEL_IGNORED)
            assert began(problem, before, await storage.cron.now())
            assert problem.about == job_id
        finally:
            may_end.set()
        await gone(storage, Code.CANCEL_IGNORED)


async def test_children_of_a_parent_that_died(storage: Storage) -> None:
    handlers = HandlerRegistry()
    is_well = anyio.Event()

    @handlers.job("parent", queue=QUEUE, max_attempts=1)
    async def parent() -> None:
        if not is_well.is_set():
            raise ValueError("not yet")

    @handlers.job("child", queue=QUEUE)
    async def child() -> None: ...

    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        before = await storage.cron.now()
        first = (await handle.enqueue(parent.request())).job_id
        after = [{"job_id": first, "on_failure": "hold"}]
        body = {"kind": "child", "queue": QUEUE, "after": after}
        await asked(caller, "POST", "/jobs", body)
        problem = await seen(storage, Code.CHILDREN_HELD)
        assert began(problem, before, await storage.cron.now())
        is_well.set()
        await asked(caller, "POST", "/jobs/requeue", {"ids": [first]})
        await gone(storage, Code.CHILDREN_HELD)


async def test_a_sequence_that_has_stopped(storage: Storage) -> None:
    handlers = HandlerRegistry()
    is_well = anyio.Event()

    @handlers.job("step", queue=QUEUE, max_attempts=1, sequence=Sequence("{order}", "stop"))
    async def step(order: str, number: int) -> None:
        if number == 0 and not is_well.is_set():
            raise ValueError("not yet")

    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        before = await storage.cron.now()
        stored = await handle.enqueue_many([step.request("7", number) for number in range(3)])
        head, *others = [each.job_id for each in stored]
        problem = await seen(storage, Code.CHILDREN_HELD)
        assert began(problem, before, await storage.cron.now())
        assert head in problem.why
        told = await handle.client.explain(others[0])
        assert problem.command == told.help == f"forge-jobs jobs requeue {head}"
        is_well.set()
        await asked(caller, "POST", "/jobs/requeue", {"ids": [head]})
        for job_id in others:
            assert (await ended(storage, job_id)).status is JobStatus.DONE
        await gone(storage, Code.CHILDREN_HELD)


async def test_a_workflow_that_waits_for_an_operator(storage: Storage) -> None:
    handlers = HandlerRegistry()
    handlers.include(group_handlers())
    is_well = anyio.Event()

    @handlers.job("load", queue=QUEUE, max_attempts=1)
    async def load() -> int:
        if not is_well.is_set():
            raise ValueError("not yet")
        return 3

    @handlers.job("write", queue=QUEUE)
    async def write(number: int = FromStep("load")) -> int:
        return number

    workflow = Workflow("nightly", queue=QUEUE)
    workflow.step("load", load.request())
    workflow.step("write", write.request(), after=["load"])
    async with a_runtime(storage, handlers).start() as handle, caller_of(storage) as caller:
        before = await storage.cron.now()
        stored = await handle.enqueue_workflow(workflow)
        problem = await seen(storage, Code.CHILDREN_HELD)
        assert began(problem, before, await storage.cron.now())
        assert stored.steps["load"].job_id in problem.why
        resume = f"forge-jobs workflows resume {stored.id}"
        assert problem.command == resume
        for job_id in (stored.id, stored.steps["write"].job_id):
            assert (await handle.client.explain(job_id)).help == resume
        is_well.set()
        await asked(caller, "POST", f"/workflows/{stored.id}/resume", {})
        assert (await ended(storage, stored.id)).status is JobStatus.DONE
        await gone(storage, Code.CHILDREN_HELD)


async def test_a_sequence_behind_a_dead_job_whose_unique_key_is_taken(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job(
        "step",
        queue=QUEUE,
        max_attempts=1,
        sequence=Sequence("{order}"),
        unique=Unique(by=("order",)),
    )
    async def step(order: str, is_well: bool) -> None:
        if not is_well:
            raise ValueError("not yet")

    async with a_runtime(storage, handlers).start() as handle:
        first = (await handle.enqueue(step.request("7", False))).job_id
        await ended(storage, first)
        second = (await handle.enqueue(step.request("7", True))).job_id
        problem = await seen(storage, Code.CHILDREN_HELD)
        assert first in problem.why
        assert f"cannot be requeued while job {second} has" in problem.why
        assert problem.command == f"forge-jobs jobs release-held {second}"
        assert (await handle.client.requeue(first)).changed == 0
        assert (await handle.client.release_held(second)).changed == 1
        await gone(storage, Code.CHILDREN_HELD)


async def test_a_job_behind_a_group_that_failed(storage: Storage) -> None:
    handlers = HandlerRegistry()
    handlers.include(group_handlers())

    @handlers.job("page", queue=QUEUE, max_attempts=1)
    async def page() -> None:
        raise ValueError("not yet")

    @handlers.job("book", queue=QUEUE)
    async def book() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        group = (await handle.enqueue_group(Group([page.request()]))).id
        held = (await handle.enqueue(book.request(), after=[After(group, "hold")])).job_id
        problem = await seen(storage, Code.CHILDREN_HELD)
        assert group in problem.why
        # A group that is requeued alone counts the same members again, and is dead again.
        assert "client.resume_group" in problem.action
        assert problem.command == ""
        told = await handle.client.explain(held)
        assert told.help == f"forge-jobs jobs release-held {held}"
        assert (await handle.client.release_held(held)).changed == 1
        await gone(storage, Code.CHILDREN_HELD)


async def test_jobs_that_wait_for_a_limit(storage: Storage) -> None:
    handlers = HandlerRegistry()
    may_end = anyio.Event()

    @handlers.job("limited", queue=QUEUE)
    async def limited() -> None:
        if not may_end.is_set():
            raise RateLimited("api")

    runtime = a_runtime(storage, handlers, rate_limits={"api": RateLimit(1, 3600)})
    async with runtime.start() as handle, caller_of(storage) as caller:
        await storage.config.take_tokens("api", 1)
        before = await storage.cron.now()
        for _ in range(3):
            await handle.enqueue(limited.request())
        problem = await seen(storage, Code.LIMIT_STARVING)
        assert began(problem, before, await storage.cron.now())
        assert problem.about == "api"
        may_end.set()
        await asked(caller, "PUT", "/limits/api", {"capacity": 100, "per": 1})
        await asked(caller, "POST", "/jobs/run-now", {"q": f"queue:{QUEUE}"})
        await gone(storage, Code.LIMIT_STARVING)


async def test_jobs_that_wait_at_a_key_whose_job_does_not_end(storage: Storage) -> None:
    handlers = HandlerRegistry()
    may_end = anyio.Event()

    @handlers.job("fetch", queue=QUEUE, concurrency=Limit(1, key="{host}"))
    async def fetch(host: str) -> None:
        if host == "slow":
            await may_end.wait()

    async with a_runtime(storage, handlers, 3).start() as handle, caller_of(storage) as caller:
        before = await storage.cron.now()
        hosts = ["slow", "slow", "slow", "quick", "quick"]
        stored = await handle.enqueue_many([fetch.request(host) for host in hosts])
        stuck, *others = [each.job_id for each in stored]
        # Nothing says how long runs of a new kind take.
        problem = await seen(storage, Code.KEY_STARVING, UNKNOWN_RUN)
        assert began(problem, before + UNKNOWN_RUN, await storage.cron.now() + UNKNOWN_RUN)
        assert (problem.about, problem.queue, problem.jobs) == ("fetch slow", QUEUE, 2)
        assert problem.command == "forge-jobs limits show default fetch --key slow"
        page = await caller.get(problem.page)
        assert stuck in page.text
        may_end.set()
        await asked(caller, "POST", "/jobs/cancel", {"ids": [stuck]})
        for job_id in others:
            assert (await ended(storage, job_id)).status is JobStatus.DONE
        await gone(storage, Code.KEY_STARVING, UNKNOWN_RUN)


async def test_an_outbox_whose_jobs_are_refused(storage: Storage, tmp_path: Path) -> None:
    handlers = HandlerRegistry()

    @handlers.job("quick", queue=QUEUE)
    async def quick() -> None: ...

    async with await open_storage(f"sqlite:///{tmp_path}/shop.db") as shop, caller_of(shop) as here:
        [refused, *others] = await write_down(shop, "jobs", 3, "it is stored with other content")
        settings = quick_settings(rollup_interval=timedelta(seconds=0.2))
        runtime = a_runtime(storage, handlers, settings=settings)
        before = await storage.cron.now()
        async with runtime.with_outbox(Outbox(shop, storage)).start():
            problem = await seen(storage, Code.OUTBOX_SET_ASIDE)
            assert before - timedelta(minutes=1) <= problem.since <= await storage.cron.now()
            assert (problem.about, problem.jobs) == ("jobs", 1)
            assert problem.command == "forge-jobs outbox list jobs"
            await wait_until(lambda: stored(storage, others), description="the others are relayed")
            await asked(here, "POST", "/outbox/jobs/discard", {"ids": [refused]})
            await gone(storage, Code.OUTBOX_SET_ASIDE)


async def test_an_outbox_whose_jobs_wait(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("quick", queue=QUEUE)
    async def quick() -> None: ...

    async with await open_storage(f"sqlite:///{tmp_path}/shop.db") as shop:
        outbox, may_go = Outbox(shop, storage), anyio.Event()
        relay = outbox.relay_once

        async def held_up(**options: Any) -> OutboxReport:
            await may_go.wait()
            return await relay(**options)

        monkeypatch.setattr(outbox, "relay_once", held_up)
        jobs = await write_down(shop, "jobs", 3)
        settings = quick_settings(rollup_interval=timedelta(seconds=0.2))
        runtime = a_runtime(storage, handlers, settings=settings).with_outbox(outbox)
        async with runtime.start():
            problem = await seen(storage, Code.OUTBOX_WAITING)
            assert (problem.about, problem.jobs) == ("jobs", 3)
            may_go.set()
            await gone(storage, Code.OUTBOX_WAITING)
            assert await stored(storage, jobs)


async def stored(storage: Storage, ids: Iterable[JobId]) -> bool:
    """True once jobs are there."""
    wanted = [*ids]
    return len(await storage.jobs.get(wanted)) == len(wanted)


async def test_a_fleet_that_is_well_has_no_problem(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("quick", queue=QUEUE)
    async def quick() -> None: ...

    async with a_runtime(storage, handlers, 4).start() as handle:
        for _ in range(10):
            outcomes = await handle.enqueue_many([quick.request() for _ in range(20)])
            await ended(storage, outcomes[-1].job_id)
            assert judging.problems(await read_snapshot(storage)) == ()
