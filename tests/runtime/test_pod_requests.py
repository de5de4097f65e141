"""A pod does what operators ask for: rests, goes on, stops, and says where jobs stand."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import anyio.lowlevel
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.pod_requests import MAX_ANSWER, PodRequest, PodVerb, RequestState
from forge_jobs.model.processes import PodLease, PodState
from forge_jobs.runtime.heartbeat.requests import Reply, RequestDesk
from forge_jobs.storage.protocols import ProcStore, Storage
from tests.support.factories import register
from tests.support.faulty import Faults, faulty
from tests.support.requests import answered, ask, over
from tests.support.runtimes import a_runtime, ended, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


class Gates:
    """Handlers that wait until a test lets them go."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.open = threading.Event()
        self.runs: list[str] = []
        gates = self

        @self.handlers.job("waits")
        async def waits(secret: str = "hunter2") -> None:
            gates.runs.append(secret)
            await wait_until(gates.open.is_set, description="the test opens the gate")

        @self.handlers.job("in_thread")
        def in_thread(secret: str = "hunter2") -> None:
            gates.runs.append(secret)
            gates.open.wait(60)

        @self.handlers.job("blocks")
        async def blocks(secret: str = "hunter2") -> None:
            gates.runs.append(secret)
            blocking_for_good(gates.open)

        self.waits, self.in_thread, self.blocks = waits, in_thread, blocks

    async def begun(self, count: int = 1) -> None:
        await wait_until(lambda: len(self.runs) >= count, description=f"{count} jobs run")


def blocking_for_good(gate: threading.Event) -> None:
    gate.wait(60)


@pytest.fixture
def gates() -> "Gates":
    return Gates()


async def pod_state(storage: Storage, host_id: HostId) -> PodState:
    [found] = [each for each in await storage.procs.pods() if each.pod.host_id == host_id]
    return found


async def standing(storage: Storage, host_id: HostId) -> str:
    return (await pod_state(storage, host_id)).standing


# -- quiet and resume ----------------------------------------------------------------------------


async def test_a_quiet_pod_ends_what_runs_and_begins_nothing_until_it_resumes(
    storage: Storage, gates: Gates
) -> None:
    async with a_runtime(storage, gates.handlers, workers=2).start() as handle:
        running = await handle.enqueue(gates.waits.request())
        await gates.begun()
        quiet = await answered(storage, handle.host_id, PodVerb.QUIET)
        assert (quiet.done, quiet.answer) == (True, "Takes no new work; 1 running job goes on.")
        # An answer says what the store knows already.
        assert await standing(storage, handle.host_id) == "quiet"
        assert any("quiet" in each for each in handle.health().problems)
        waiting = await handle.enqueue(gates.waits.request())
        gates.open.set()
        assert (await ended(storage, running.job_id)).status is JobStatus.DONE

        async def gave_back() -> bool:
            slots = (await pod_state(storage, handle.host_id)).slots
            return all(each.grant == 0 for each in slots.values())

        await wait_until(gave_back, description="the slots are given back")
        assert len(gates.runs) == 1
        resumed = await answered(storage, handle.host_id, PodVerb.RESUME)
        assert resumed.answer == "Takes work again."
        assert (await ended(storage, waiting.job_id)).status is JobStatus.DONE
        await wait_until(
            lambda: is_standing(storage, handle.host_id, "live"), description="the pod is live"
        )
        assert not handle.health().problems


async def is_standing(storage: Storage, host_id: HostId, wanted: str) -> bool:
    return await standing(storage, host_id) == wanted


async def test_the_slots_of_a_quiet_pod_go_to_another(storage: Storage, gates: Gates) -> None:
    first = a_runtime(storage, gates.handlers, workers=2)
    second = a_runtime(storage, gates.handlers, workers=2)
    async with first.start() as quiet, second.start() as other:
        await answered(storage, quiet.host_id, PodVerb.QUIET)

        async def has_all() -> bool:
            return (await pod_state(storage, other.host_id)).slots["default"].grant == 2

        await wait_until(has_all, description="the other pod has all slots")
        await answered(storage, quiet.host_id, PodVerb.RESUME)

        async def shares() -> bool:
            return (await pod_state(storage, quiet.host_id)).slots["default"].grant == 1

        await wait_until(shares, description="the slots are shared again")


async def test_a_quiet_pod_stays_quiet_under_a_new_lease(storage: Storage, gates: Gates) -> None:
    async with a_runtime(storage, gates.handlers).start() as handle:
        await answered(storage, handle.host_id, PodVerb.QUIET)
        # Another registration voids the lease: the next beat registers the pod anew.
        await register(storage, host_id=handle.host_id)
        waiting = await handle.enqueue(gates.waits.request())
        await wait_until(
            lambda: is_standing(storage, handle.host_id, "quiet"), description="quiet again"
        )
        gates.open.set()
        assert gates.runs == []
        await answered(storage, handle.host_id, PodVerb.RESUME)
        await ended(storage, waiting.job_id)


# -- stop ----------------------------------------------------------------------------------------


async def test_a_stop_lets_the_running_job_end_and_the_pod_leaves(
    storage: Storage, gates: Gates
) -> None:
    handle = await a_runtime(storage, gates.handlers).start()
    outcome = await handle.enqueue(gates.waits.request())
    await gates.begun()
    stop = await answered(storage, handle.host_id, PodVerb.STOP)
    assert stop.done
    assert stop.answer == "Stops; 1 running job goes on, with the grace of a stop."
    assert handle.health().draining
    resume = await answered(storage, handle.host_id, PodVerb.RESUME)
    assert (resume.done, resume.answer) == (False, "The pod is stopping already.")
    gates.open.set()
    assert (await ended(storage, outcome.job_id)).status is JobStatus.DONE

    async def has_left() -> bool:
        return not await storage.procs.pods()

    await wait_until(has_left, description="the pod has left")
    report = await handle.stop()
    assert (report.interrupted, report.left) == ((), True)


async def test_an_idle_pod_answers_before_it_leaves(storage: Storage, gates: Gates) -> None:
    handle = await a_runtime(storage, gates.handlers).start()
    asked: list[None] = []
    handle.tell_when_asked_to_stop(lambda: asked.append(None))
    stop = await answered(storage, handle.host_id, PodVerb.STOP)
    assert stop.answer == "Stops; no job runs."
    await wait_until(lambda: asked, description="the program hears of the stop")
    assert not handle.health().draining
    await handle.stop()


# -- stacks --------------------------------------------------------------------------------------


async def test_stacks_show_where_each_job_stands_and_no_value(
    storage: Storage, gates: Gates
) -> None:
    async with a_runtime(storage, gates.handlers, workers=2).start() as handle:
        first = await handle.enqueue(gates.waits.request(secret="s3cr3t"))
        second = await handle.enqueue(gates.in_thread.request(secret="s3cr3t"))
        await gates.begun(2)
        found = (await answered(storage, handle.host_id, PodVerb.STACKS)).answer
        gates.open.set()
    assert f"job {first.job_id} (waits) in default, for " in found
    assert "Gates.__init__.<locals>.waits" in found
    assert f"job {second.job_id} (in_thread) in default, for " in found
    assert "tests/runtime/test_pod_requests.py:" in found
    assert "Gates.__init__.<locals>.in_thread" in found
    assert "threading.py:" in found
    assert "which runs the event loop" in found
    assert "s3cr3t" not in found
    assert not any(line.lstrip().startswith("/") for line in found.splitlines())
    assert len(found.encode()) <= MAX_ANSWER


async def test_a_blocked_event_loop_shows_its_stack_while_it_hangs(
    storage: Storage, gates: Gates
) -> None:
    """Another thread asks, because the event loop of the pod is that of the test."""
    answers: list[PodRequest] = []
    failures: list[BaseException] = []

    async def look_from_outside(host_id: HostId) -> None:
        other = await storage.reopen()
        try:
            answers.append(await answered(other, host_id, PodVerb.STACKS))
        finally:
            await other.aclose()

    def outside(host_id: HostId) -> None:
        try:
            while not gates.runs:
                time.sleep(0.005)
            asyncio.run(look_from_outside(host_id))
        except BaseException as error:
            failures.append(error)
        finally:
            gates.open.set()

    settings = quick_settings(blocked_after=seconds(0.2))
    async with a_runtime(storage, gates.handlers, settings=settings).start() as handle:
        thread = threading.Thread(target=outside, args=(handle.host_id,))
        thread.start()
        outcome = await handle.enqueue(gates.blocks.request())
        await ended(storage, outcome.job_id)
        await asyncio.to_thread(thread.join)
    assert failures == []
    assert "blocking_for_good" in answers[0].answer
    assert "which runs the event loop" in answers[0].answer
    assert "busy with this job" in answers[0].answer


async def test_stacks_of_many_jobs_are_bounded(storage: Storage, gates: Gates) -> None:
    deep = 60

    async def dive(depth: int) -> None:
        if depth:
            await dive(depth - 1)
        else:
            gates.runs.append("")
            await asyncio.Event().wait()

    @gates.handlers.job("dives")
    async def dives() -> None:
        await dive(deep)

    count = 60
    settings = quick_settings(grace=seconds(0.5))
    async with a_runtime(storage, gates.handlers, workers=count, settings=settings).start() as pod:
        await pod.enqueue_many([dives.request() for _ in range(count)])
        await gates.begun(count)
        found = (await answered(storage, pod.host_id, PodVerb.STACKS)).answer
    assert 50_000 < len(found.encode()) <= MAX_ANSWER
    assert found.endswith("… and more, left out")
    assert "outer frames left out" in found


# -- trouble -------------------------------------------------------------------------------------


class Obedient:
    """Counts what a pod was asked for."""

    def __init__(self) -> None:
        self.asked_for: list[PodVerb] = []
        self.looks = 0

    def asked(self, request: PodRequest, reply: Reply) -> None:
        self.asked_for.append(request.verb)
        reply("done", True)

    def stacks(self) -> str:
        self.looks += 1
        return "here"


class Stalling:
    """A store whose calls take time on the clock of the desk."""

    def __init__(self, procs: Any, desk: "DeskOnStore") -> None:
        self._procs, self._desk = procs, desk

    async def hear_requests(self, lease: PodLease) -> list[PodRequest]:
        found: list[PodRequest] = await self._procs.hear_requests(lease)
        self._desk.clock.advance(self._desk.stalls)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._procs, name)


class DeskOnStore:
    """A desk on a store that fails on demand."""

    def __init__(self, storage: Storage, lease: PodLease, wake: Callable[[], None]) -> None:
        self.faults = Faults()
        self.pod = Obedient()
        self.clock = ManualClock()
        self.stalls = 0.0
        self._procs = Stalling(faulty(storage, self.faults).procs, self)
        self._lease = lease
        self._desk = RequestDesk(self.pod, asyncio.get_running_loop(), wake, self.clock)

    async def serve(self, *, is_asked: bool = True) -> None:
        procs = cast(ProcStore, self._procs)
        self._desk.begin()
        await self._desk.serve(procs, self._lease, is_asked=is_asked)
        await anyio.lowlevel.checkpoint()


@pytest.fixture
async def desk(storage: Storage) -> DeskOnStore:
    return DeskOnStore(storage, await register(storage, host_id=new_host_id()), lambda: None)


@pytest.mark.parametrize("verb", [PodVerb.QUIET, PodVerb.STACKS])
@pytest.mark.parametrize("lost", ["hear_requests", "answer_request"])
async def test_a_pod_whose_replies_are_lost_acts_and_answers_once(
    storage: Storage, desk: DeskOnStore, verb: PodVerb, lost: str
) -> None:
    desk.faults.lose_replies(lost, 2)
    request = await ask(storage, desk._lease.host_id, verb)
    for _ in range(6):
        await desk.serve()
    assert (await over(storage, request)).state is RequestState.ANSWERED
    looks = 1 if verb is PodVerb.STACKS else 0
    assert (len(desk.pod.asked_for), desk.pod.looks) == (1 - looks, looks)


async def test_an_answer_waits_for_the_store_and_a_beat_goes_on(
    storage: Storage, desk: DeskOnStore
) -> None:
    request = await ask(storage, desk._lease.host_id, PodVerb.QUIET)
    await desk.serve()
    desk.faults.down = True
    await desk.serve(is_asked=False)
    desk.faults.down = False
    await desk.serve(is_asked=False)
    assert (await over(storage, request)).answer == "done"


async def test_a_request_that_is_heard_too_late_is_not_obeyed(
    storage: Storage, desk: DeskOnStore
) -> None:
    request = await ask(storage, desk._lease.host_id, PodVerb.STOP)
    desk.stalls = 1.0
    await desk.serve()
    assert desk.pod.asked_for == []
    desk.stalls = 0.0
    await desk.serve()
    await desk.serve(is_asked=False)
    assert desk.pod.asked_for == [PodVerb.STOP]
    assert (await over(storage, request)).state is RequestState.ANSWERED


async def test_without_requests_no_call_is_made(desk: DeskOnStore) -> None:
    for _ in range(3):
        await desk.serve(is_asked=False)
    assert not desk.faults.calls


async def test_a_pod_that_is_not_asked_makes_no_call_for_requests(
    storage: Storage, gates: Gates
) -> None:
    faults = Faults()
    async with a_runtime(faulty(storage, faults), gates.handlers).start() as handle:
        await wait_until(lambda: faults.calls["heartbeat"] >= 5, description="the pod beats")
        outcome = await handle.enqueue(gates.waits.request())
        gates.open.set()
        await ended(storage, outcome.job_id)
    calls = {"hear_requests", "answer_request", "end_draining"}
    assert calls.isdisjoint(faults.calls)


async def test_a_store_that_is_gone_leaves_the_pod_as_it_is(storage: Storage, gates: Gates) -> None:
    faults = Faults()
    async with a_runtime(faulty(storage, faults), gates.handlers).start() as handle:
        await wait_until(lambda: faults.calls["heartbeat"] >= 2, description="the pod beats")
        faults.lose_replies("answer_request", 3)
        quiet = await ask(storage, handle.host_id, PodVerb.QUIET)
        assert (await over(storage, quiet)).state is RequestState.ANSWERED
        await wait_until(lambda: faults.lost("answer_request"), description="sent again")
        assert not handle.health().draining
        outcome = await handle.enqueue(gates.waits.request())
        await answered(storage, handle.host_id, PodVerb.RESUME)
        gates.open.set()
        await job_when(storage, outcome.job_id, JobStatus.DONE)
