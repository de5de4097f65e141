"""Calls of a job on the event loop and the store, counted: never how long they take.

A ceiling is the count of one day, and some head-room. A good reason may raise the ceiling.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from forge_jobs import HandlerRegistry, JobClient, RuntimeSettings
from forge_jobs.clock import SystemClock, from_us
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Claim, ClaimedJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.runtime.shared import events
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.calls import Calls
from tests.support.factories import a_claimed_job
from tests.support.faulty import Faults, faulty
from tests.support.queue_loops import bench
from tests.support.runtimes import QUEUE, a_runtime, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

CALLS_OF_A_JOB = {10: 74, 100: 68}
"""By workers: Python and C functions called from our modules on the event loop's thread. 72.7 and
66.1 were counted on Python 3.11, three times within two calls at a load of 12.
"""

STORE_CALLS_OF_A_THOUSAND = 50
"""3 to 9 were counted: how many ends travel together depends on the machine."""

JOBS = 2_000


@pytest.fixture
def anyio_backend() -> str:
    """Name asyncio whatever ``FORGE_TEST_LOOP`` says: what was counted is true of this loop."""
    return "asyncio"


class ReadyClaims:
    """Answers exchanges with claims that lie ready, and takes every end."""

    def __init__(self) -> None:
        self.all_ended = asyncio.Event()
        self._claims = [_claimed() for _ in range(JOBS)]
        self._ended = 0

    async def exchange(
        self, _queue: str, ends: Sequence[Finalization], demand: Demand, _lease: PodLease
    ) -> Exchange:
        await anyio.lowlevel.checkpoint()
        self._ended += len(ends)
        if self._ended == JOBS:
            self.all_ended.set()
        claimed = self._claims[: demand.limit]
        del self._claims[: demand.limit]
        return Exchange((True,) * len(ends), tuple(claimed), None)


def _claimed() -> ClaimedJob:
    claim = Claim(QUEUE, new_job_id(), 1, new_host_id())
    now = from_us(SystemClock().time_us())
    return a_claimed_job(claim=claim, kind="noop", payload='{"n":1}', run_at=now, enqueued_at=now)


@pytest.mark.parametrize("workers", CALLS_OF_A_JOB)
async def test_a_job_costs_the_event_loop_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    calls, ready = Calls(), ReadyClaims()
    # A hundred routine events are recorded in each second, however many jobs start then: the
    # slower the machine, the more of them.
    monkeypatch.setattr(events, "ROUTINE_PER_SECOND", 0)
    async with BACKENDS["sqlite"](tmp_path, None) as storage, bench(storage) as it:
        monkeypatch.setattr(storage.jobs, "exchange", ready.exchange, raising=False)

        @it.handlers.job("noop")
        async def noop(n: int) -> None: ...

        it.services.kinds = it.handlers.kinds()
        # So much that the measured pace has no effect.
        it.services.settings = structs.replace(it.services.settings, claim_ahead=seconds(30))
        sys.setprofile(calls)
        try:
            it.beat(workers)
            await ready.all_ended.wait()
        finally:
            sys.setprofile(None)
    assert calls.count / JOBS <= CALLS_OF_A_JOB[workers]


@pytest.mark.parametrize("workers", [10, 100])
async def test_jobs_share_their_calls_of_the_store(storage: Storage, workers: int) -> None:
    handlers = HandlerRegistry()
    faults = Faults()

    @handlers.job("noop")
    async def noop(n: int) -> None: ...

    async def is_done() -> bool:
        return (await storage.jobs.counts([QUEUE]))[QUEUE].by_status.get("done", 0) == JOBS

    async with JobClient(storage, handlers) as client:
        await client.enqueue_many([noop.request(n) for n in range(JOBS)])
    # So much that the pace, which is that of the machine, has no effect.
    settings = RuntimeSettings(claim_ahead=seconds(30))
    runtime = a_runtime(faulty(storage, faults), handlers, workers, settings=settings)
    async with runtime.start():
        await wait_until(is_done, description="all are stored")
    used = faults.calls["exchange"] + faults.calls["release"]
    assert used <= STORE_CALLS_OF_A_THOUSAND * JOBS / 1_000
