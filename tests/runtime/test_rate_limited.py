"""A job that waits for a rate limit: in turn, at no cost, however long."""

import importlib.util
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.handlers.outcomes import RateLimited
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import RateLimit
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.factories import counters
from tests.support.runtimes import a_runtime, ended, job_because, quick_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

WALKTHROUGH = Path(__file__).parents[2] / "examples" / "walkthrough" / "jobs.py"
HOUR = timedelta(hours=1)


def waiting_for(scope: str, *, returned: bool = False, count: int = 1) -> HandlerRegistry:
    """The kind ``waits``, which never finds a token."""
    handlers = HandlerRegistry()

    @handlers.job("waits", max_attempts=1)
    async def waits() -> Any:
        if returned:
            return RateLimited(scope, count)
        raise RateLimited(scope, count)

    return handlers


@pytest.mark.parametrize("returned", [False, True])
async def test_it_is_due_at_its_turn_and_nothing_is_counted(
    storage: Storage, returned: bool
) -> None:
    handlers = waiting_for("smtp", returned=returned, count=2)
    limits = {"smtp": RateLimit(4, per=4 * HOUR)}
    async with a_runtime(storage, handlers, rate_limits=limits).start() as handle:
        await handle.rate_limit.drain("smtp")
        job_id = (await handle.enqueue(EnqueueRequest("waits"))).job_id
        job = await job_because(storage, job_id, Cause.RATE_LIMITED)
    [queue] = await storage.config.queues()
    assert (job.status, job.attempt, job.snoozes) == (JobStatus.PENDING, 0, 0)
    assert (job.errors, job.rate_limit) == ((), "smtp")
    assert job.claimed_at is not None
    # Two tokens come in two hours. A place in the line is not given before them.
    assert job.due_at - job.claimed_at <= HOUR / 4 + timedelta(minutes=1)
    assert job.due_at - job.claimed_at > HOUR / 10
    assert (queue.cooldown_level, queue.cooldown_ended_for) == (0, None)


@pytest.mark.parametrize(("scope", "count"), [("nowhere", 1), ("smtp", 5)])
async def test_a_wait_that_cannot_end_is_a_failure_that_says_why(
    storage: Storage, scope: str, count: int
) -> None:
    handlers = waiting_for(scope, count=count)
    limits = {"smtp": RateLimit(4, per=1)}
    async with a_runtime(storage, handlers, rate_limits=limits).start() as handle:
        job = await ended(storage, (await handle.enqueue(EnqueueRequest("waits"))).job_id)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED)
    assert scope in job.errors[-1].message


async def test_a_store_that_gives_no_turn_costs_neither_the_job_nor_the_slot(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> Sequence[timedelta]:
        raise Unavailable("down")

    monkeypatch.setattr(storage.config, "take_turns", down)
    handlers = waiting_for("smtp")
    limits = {"smtp": RateLimit(1, per=HOUR)}
    async with a_runtime(storage, handlers, rate_limits=limits).start() as handle:
        job_id = (await handle.enqueue(EnqueueRequest("waits"))).job_id
        job = await job_because(storage, job_id, Cause.RATE_LIMITED)
        assert job.claimed_at is not None
        assert timedelta(seconds=0.9) < job.due_at - job.claimed_at < timedelta(minutes=1)
        await wait_until(lambda: not handle.health().queues["default"].running, description="free")


@pytest.fixture
def walkthrough() -> ModuleType:
    """README's handlers."""
    spec = importlib.util.spec_from_file_location("walkthrough_jobs", WALKTHROUGH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["walkthrough_jobs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_backlog_of_readmes_mails_is_sent_to_the_last_one_in_few_runs(
    storage: Storage, walkthrough: ModuleType
) -> None:
    # Eleven times what the limit gives at once, as 1,100 mails under 100 a minute.
    mails = 110
    limits = {"smtp": RateLimit(10, per=0.25)}
    runtime = QueueRuntime(
        storage, walkthrough.handlers, rate_limits=limits, settings=quick_settings()
    )
    async with runtime.with_queues(mail=10).start() as handle:
        await handle.enqueue_many(
            [walkthrough.send_receipt.request(n, f"{n}@example.org") for n in range(mails)]
        )

        async def all_sent() -> bool:
            counts = (await storage.jobs.counts(["mail"]))["mail"].by_status
            assert counts[JobStatus.DEAD] == counts[JobStatus.FAILED] == 0
            return counts[JobStatus.DONE] == mails

        await wait_until(all_sent, description="all mails are sent", timeout=90)
    counted = Counter(await counters(storage, "mail"))
    assert counted[Cause.SUCCEEDED] == mails
    assert counted["claimed"] <= 3 * mails
