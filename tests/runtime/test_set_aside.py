"""Ends that the store refuses while others are taken: kept, and sent apart."""

import logging
from typing import Any

import anyio
import pytest

from forge_jobs.errors import InvalidInput, StorageRefused, Unavailable
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, enqueue_one, get_job, register
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, ended, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

TRIGGER = StorageRefused("the database refused the statement (SQLSTATE P0001)")


class GatedJobs:
    """Jobs that leave a mark, and wait where the test says so."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.runs: list[int] = []
        self.doors: dict[int, anyio.Event] = {}

        @self.handlers.job("works")
        async def works(n: int) -> str:
            self.runs.append(n)
            if n in self.doors:
                await self.doors[n].wait()
            return f"result {n}"

        self.job: Handler[[int], Any] = works

    async def enqueue(self, handle: QueueHandle, n: int) -> JobId:
        return (await handle.enqueue(self.job.request(n))).job_id

    async def held_at_the_door(self, handle: QueueHandle, n: int) -> JobId:
        """A job that has started and not ended."""
        self.doors[n] = anyio.Event()
        job_id = await self.enqueue(handle, n)
        await wait_until(lambda: n in self.runs, description=f"job {n} runs")
        return job_id


def aside(handle: QueueHandle) -> tuple[str, ...]:
    return handle.health().queues["default"].set_aside


async def beats(handle: QueueHandle, faults: Faults, count: int) -> None:
    """Wait for so many more beats."""
    until = faults.calls["heartbeat"] + count
    await wait_until(lambda: faults.calls["heartbeat"] >= until, description="beats go on")


@pytest.mark.parametrize(
    ("workers", "error"),
    [
        pytest.param(1, TRIGGER, id="1-refused"),
        pytest.param(4, TRIGGER, id="4-refused", marks=pytest.mark.long),
        pytest.param(
            1, RuntimeError("a defect of the store"), id="1-defect", marks=pytest.mark.long
        ),
        pytest.param(4, RuntimeError("a defect of the store"), id="4-defect"),
        pytest.param(1, None, id="1-locked"),
        pytest.param(4, None, id="4-locked", marks=pytest.mark.long),
    ],
)
async def test_an_end_that_is_not_taken_is_kept_beaten_for_and_in_nobodys_way(
    storage: Storage, workers: int, error: Exception | None
) -> None:
    faults, works = Faults(), GatedJobs()
    settings = quick_settings(lease=seconds(3), fence_margin=seconds(0.3))
    runtime = a_runtime(faulty(storage, faults), works.handlers, workers, settings=settings)
    async with runtime.start() as handle:
        held = await works.held_at_the_door(handle, 0)
        if error is None:
            faults.locked.add(held)
        else:
            faults.refused[held] = error
        works.doors[0].set()
        await wait_until(lambda: aside(handle), description="the end is set aside")

        for n in range(1, 20):
            job_id = await works.enqueue(handle, n)
            assert await handle.result(job_id, timeout=50) == f"result {n}"
        # For longer than the lease, beside a reaper that looks ten times a second.
        await beats(handle, faults, 80)
        [line] = aside(handle)
        assert f"the end of job {held}: " in line
        assert handle.health().able_to_claim
        assert (await get_job(storage, held)).status is JobStatus.IN_PROGRESS

        faults.refused.clear()
        faults.locked.clear()
        job = await ended(storage, held)
        assert (job.status, job.result, job.attempt, job.crashes) == (
            JobStatus.DONE,
            '"result 0"',
            1,
            0,
        )
        await wait_until(lambda: not aside(handle), description="nothing is set aside")
        assert handle.health().lost_claims == 0
    assert works.runs == list(range(20))


async def test_an_end_that_alone_gets_no_answer_while_beats_do_is_set_aside(
    storage: Storage,
) -> None:
    faults, works = Faults(), GatedJobs()
    async with a_runtime(faulty(storage, faults), works.handlers).start() as handle:
        held = await works.held_at_the_door(handle, 0)
        faults.refused[held] = Unavailable("the statement took too long")
        works.doors[0].set()
        assert await handle.result(await works.enqueue(handle, 1), timeout=50) == "result 1"
        assert len(aside(handle)) == 1
        faults.refused.clear()
        assert (await ended(storage, held)).result == '"result 0"'
    assert works.runs == [0, 1]


@pytest.mark.parametrize(
    "error",
    [TRIGGER, RuntimeError("a defect of the store")],
    ids=["refused", "defect"],
)
async def test_what_is_refused_to_all_is_waited_out_and_nothing_is_set_aside(
    storage: Storage, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    faults, works = Faults(), GatedJobs()
    caplog.set_level(logging.INFO, "forge_jobs")
    # No handler is stopped meanwhile, by however slow a machine.
    settings = quick_settings(lease=seconds(60), fence_margin=seconds(1))
    runtime = a_runtime(faulty(storage, faults), works.handlers, 5, settings=settings)
    async with runtime.start() as handle:
        held = [await works.held_at_the_door(handle, n) for n in range(5)]
        faults.refusing = error
        for door in works.doors.values():
            door.set()
        queue = handle._pod.queues["default"]
        await wait_until(lambda: queue.failures >= 5, description="five tries have failed")
        calls = faults.calls["finalize"]
        health = handle.health()
        assert health.queues["default"].waiting_ends == 5
        assert not aside(handle)
        assert not health.able_to_claim
        if isinstance(error, StorageRefused):
            assert f"queue default: the store refuses: {error}" in health.problems
            assert f"the store refuses the heartbeat: {error}" in health.problems
        # Two ends are tried alone for each call of all: the search of the batch ends early.
        assert calls <= 2 * (queue.failures + 1)

        faults.refusing = None
        for n, job_id in enumerate(held):
            job = await ended(storage, job_id)
            assert (job.result, job.attempt, job.crashes) == (f'"result {n}"', 1, 0)
        await wait_until(lambda: handle.health().able_to_claim, description="all is well")
    assert works.runs == list(range(5))
    said = [each for each in caplog.messages if each.startswith("queue default: ")]
    assert len(said) == 2, said
    assert said[1] == "queue default: the store answers again"


async def test_an_error_of_its_value_alone_condemns_an_end(storage: Storage) -> None:
    faults, works = Faults(), GatedJobs()
    wrong = InvalidInput("value", "is not accepted", "give another")
    async with a_runtime(faulty(storage, faults), works.handlers, 2).start() as handle:
        held = [await works.held_at_the_door(handle, n) for n in range(2)]
        faults.refused[held[0]] = wrong
        for door in works.doors.values():
            door.set()
        services = handle._pod.services
        await wait_until(lambda: services.given_up, description="the end is dropped")
        assert [claim.job_id for claim in services.given_up] == held[:1]
        assert not aside(handle)
        faults.refused.clear()
        assert (await ended(storage, held[1])).result == '"result 1"'


async def test_a_stop_says_which_ends_were_set_aside(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    faults, works = Faults(), GatedJobs()
    handle = await a_runtime(faulty(storage, faults), works.handlers, 2).start()
    refused = await works.held_at_the_door(handle, 0)
    locked = await works.held_at_the_door(handle, 1)
    faults.refused[refused] = TRIGGER
    faults.locked.add(locked)
    for door in works.doors.values():
        door.set()
    await wait_until(lambda: len(aside(handle)) == 2, description="both are set aside")
    with anyio.fail_after(20):
        report = await handle.stop(timeout=0.1)
    assert set(report.unstored) == {refused, locked}
    assert report.exit_code == 1
    [said] = [each for each in caplog.messages if "has not taken the ends of" in each]
    assert refused in said
    assert locked in said


async def test_a_stop_does_not_wait_for_an_end_that_is_refused_again_and_again(
    storage: Storage,
) -> None:
    faults, works = Faults(), GatedJobs()
    handle = await a_runtime(faulty(storage, faults), works.handlers).start()
    refused = await works.held_at_the_door(handle, 0)
    faults.refused[refused] = TRIGGER
    works.doors[0].set()
    await wait_until(lambda: aside(handle), description="it is set aside")
    with anyio.fail_after(60):
        report = await handle.stop(timeout=600)
    assert report.unstored == (refused,)


async def test_a_stop_takes_an_end_along_whose_row_is_unlocked_meanwhile(
    storage: Storage,
) -> None:
    faults, works = Faults(), GatedJobs()
    handle = await a_runtime(faulty(storage, faults), works.handlers).start()
    locked = await works.held_at_the_door(handle, 0)
    faults.locked.add(locked)
    works.doors[0].set()
    await wait_until(lambda: aside(handle), description="it is set aside")
    stop = anyio.Event()

    async def unlock() -> None:
        before = faults.calls["finalize"]
        await stop.wait()
        await wait_until(
            lambda: faults.calls["finalize"] >= before + 5, description="the stop tries again"
        )
        faults.locked.clear()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unlock)
        stop.set()
        report = await handle.stop(timeout=600)
    assert report.is_clean
    assert (await get_job(storage, locked)).status is JobStatus.DONE


async def test_no_more_jobs_start_when_too_many_ends_are_set_aside(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.runtime.queue.outbox.BACKLOG", 3)
    faults, works = Faults(), GatedJobs()
    async with a_runtime(faulty(storage, faults), works.handlers, 3).start() as handle:
        held = [await works.held_at_the_door(handle, n) for n in range(3)]
        faults.locked.update(held)
        for door in works.doors.values():
            door.set()
        outbox = handle._pod.queues["default"].outbox
        await wait_until(lambda: outbox.aside.count == 3, description="three are set aside")
        last = await works.enqueue(handle, 3)
        await beats(handle, faults, 5)
        assert works.runs == [0, 1, 2]
        faults.locked.clear()
        assert (await ended(storage, last)).result == '"result 3"'


async def test_health_names_revivals_and_news_that_are_refused(storage: Storage) -> None:
    dead_pod = await register(storage)
    for _ in range(3):
        await enqueue_one(storage)
    stale, *_ = [one.claim.job_id for one in await claim(storage, dead_pod, limit=3)]
    await storage.jobs.heartbeat(dead_pod, (), seconds(0.1))
    faults, works = Faults(), GatedJobs()
    settings = quick_settings(lease=seconds(4), fence_margin=seconds(0.5))
    runtime = a_runtime(faulty(storage, faults), works.handlers, settings=settings)
    async with runtime.start() as handle:
        parent = await works.held_at_the_door(handle, 0)
        children = [
            (await handle.enqueue(works.job.request(n), after=[parent])).job_id for n in range(1, 4)
        ]
        faults.refused = {stale: TRIGGER, children[0]: TRIGGER}
        works.doors[0].set()
        for child in children[1:]:
            await ended(storage, child)

        def named() -> tuple[str, ...]:
            return handle.health().set_aside

        await wait_until(lambda: len(named()) == 2, description="health names both")
        [revival, news] = named()
        assert revival.startswith(f"the revival of job {stale}: StorageRefused: ")
        assert news.startswith(f"the handover to child {children[0]} of parent {parent}: ")
        assert handle.health().able_to_claim

        faults.refused = {}
        await ended(storage, children[0])
        await wait_until(lambda: not named(), description="nothing is set aside any more")
