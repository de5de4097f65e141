"""``forge-jobs doctor`` looks at every queue, and names the command that helps."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.processes import AllocationChange, PodLease, Slots
from forge_jobs.model.queues import RateLimit
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.model.transitions import Transition
from forge_jobs.operating.health import findings
from forge_jobs.policy import remedies
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.cli.conftest import CommandLine
from tests.support.clocks import WrongClock
from tests.support.factories import (
    KIND,
    QUEUE,
    claim,
    claim_one,
    enqueue_one,
    error,
    finish,
    register,
)

TWO_HOURS = timedelta(hours=2)


@pytest.fixture
def in_store(forge: CommandLine) -> Callable[..., Any]:
    """Does something with the store that the command line looks at."""

    async def work(do: Callable[[Storage], Awaitable[Any]], ago: timedelta) -> Any:
        async with await open_storage(forge.url, clock=WrongClock(-ago)) as storage:
            return await do(storage)

    def run(do: Callable[[Storage], Awaitable[Any]], ago: timedelta = timedelta(0)) -> Any:
        return anyio.run(partial(work, do, ago))

    return run


InStore = Callable[..., Any]
"""Called with what to do, and with how long ago that happens."""


def found(forge: CommandLine, check: str) -> dict[str, Any]:
    """The one finding of a check, which is a warning."""
    document = forge.json("doctor")
    [finding] = [each for each in document["findings"] if each["check"] == check]
    assert finding["state"] == "warn"
    assert finding["help"] in forge("doctor").stdout
    return dict(finding)


async def serve(storage: Storage) -> PodLease:
    """A pod that leads and has the only slot of the queue."""
    lease = await register(storage, lease_for=timedelta(days=1))
    await storage.cron.lead(lease.host_id, timedelta(days=1))
    [allocation] = await storage.procs.allocations()
    given = {lease.host_id: Slots(1, 1)}
    change = AllocationChange(queue=QUEUE, version=allocation.version, slots=given)
    assert await storage.procs.allocate([change]) == [True]
    return lease


@pytest.mark.parametrize("ago", [timedelta(seconds=20), timedelta(hours=2)])
def test_a_problem_is_a_finding_with_the_command_that_helps(
    forge: CommandLine, in_store: InStore, ago: timedelta
) -> None:
    async def pause(storage: Storage) -> None:
        await serve(storage)
        await enqueue_one(storage)
        await storage.config.set_paused(QUEUE, True)

    in_store(pause, ago)

    if ago < timedelta(minutes=1):
        told = {each["check"]: each for each in forge.json("doctor")["findings"]}
        assert told["problems"]["text"] == "none is seen"
        return
    finding = found(forge, "paused_with_work")
    assert finding["text"].startswith(f"Queue {QUEUE} is paused with work due. 1 job waits, the ")
    assert finding["help"] == f"forge-jobs queues resume {QUEUE}"
    assert in_store(lambda storage: _resumed(storage, finding["help"], forge)) is False


async def _resumed(storage: Storage, command: str, forge: CommandLine) -> bool:
    await anyio.to_thread.run_sync(lambda: forge(*command.split()[1:]))
    [queue] = await storage.config.queues()
    return queue.paused


def test_what_is_critical_must_be_put_right(forge: CommandLine, in_store: InStore) -> None:
    in_store(enqueue_one, timedelta(hours=2))

    document = forge.json("doctor", code=1)

    told = {each["check"]: each for each in document["findings"]}
    assert (told["unserved_queue"]["state"], document["ok"]) == ("fail", False)
    assert told["unserved_queue"]["help"] == f"forge-jobs worker MODULE:ATTR --queues {QUEUE}"


def test_a_queue_without_workers(forge: CommandLine) -> None:
    forge("queues", "set", "x", "--max-workers", "0")

    finding = found(forge, "max-workers")

    assert finding["text"] == "'x' has max_workers 0: 0 jobs wait"
    assert finding["help"] == "forge-jobs queues set x --max-workers 1"


def test_jobs_whose_kind_nobody_knows(forge: CommandLine, in_store: InStore) -> None:
    async def hold(storage: Storage) -> None:
        await enqueue_one(storage, kind="no.such")
        lease = await serve(storage)
        assert not await claim(storage, lease)

    in_store(hold, TWO_HOURS)

    finding = found(forge, "unknown_kind")

    assert finding["text"].startswith(f"1 job of kind no.such in queue {QUEUE} cannot run since ")
    assert finding["help"] == f"forge-jobs worker MODULE:ATTR --queues {QUEUE}"


def test_jobs_that_a_parent_without_success_left_to_an_operator(
    forge: CommandLine, in_store: InStore
) -> None:
    async def leave(storage: Storage) -> JobId:
        lease = await serve(storage)
        parent = await enqueue_one(storage)
        held = After(parent, on_failure="hold")
        await enqueue_one(storage, kind="child", after=(held,))
        await enqueue_one(storage, kind="other", after=(After(await enqueue_one(storage)),))
        gone = Transition(status=JobStatus.DEAD, cause=Cause.FAILED, error=error())
        claimed = await claim_one(storage, lease)
        assert claimed.claim.job_id == parent
        assert await finish(storage, claimed, gone)
        await hand_over_once(storage.jobs)
        return parent

    parent = in_store(leave, TWO_HOURS)

    finding = found(forge, "children_held")

    assert finding["text"].startswith(f"1 job waits in queue {QUEUE} behind jobs that ended ")
    assert finding["help"] == remedies.requeue(parent)


def test_dead_jobs_by_kind(forge: CommandLine, in_store: InStore) -> None:
    async def kill(storage: Storage) -> None:
        lease = await serve(storage)
        for _ in range(2):
            await enqueue_one(storage)
            gone = Transition(status=JobStatus.DEAD, cause=Cause.FAILED, error=error())
            assert await finish(storage, await claim_one(storage, lease), gone)

    in_store(kill)

    finding = found(forge, "dead")

    assert finding["text"].startswith(f"2 jobs of '{QUEUE}' dead since 20")
    assert finding["text"].endswith(f": '{KIND}' 2")
    forge(*finding["help"].split()[1:])


def test_a_due_job_that_waits_for_a_slot_with_who_holds_it(
    forge: CommandLine, in_store: InStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "_TOLERATED_WAIT", timedelta(0))

    async def fill(storage: Storage) -> tuple[JobId, JobId]:
        lease = await serve(storage)
        runs, waits = await enqueue_one(storage), await enqueue_one(storage)
        claimed = await claim_one(storage, lease)
        assert await storage.jobs.record_start([claimed.claim]) == [True]
        return runs, waits

    runs, waits = in_store(fill)

    finding = found(forge, "oldest due")

    assert finding["text"].startswith(f"a job of '{QUEUE}' has been due for ")
    assert (
        f": {waits}, '{KIND}' in queue '{QUEUE}': no slot is free: 1 of 1 slot in use, the "
        in (finding["text"])
    )
    assert f"by job {runs} ('{KIND}') on pod " in finding["text"]
    assert finding["help"] == f"forge-jobs queues set {QUEUE} --max-workers 2"


def test_jobs_of_lost_pods_are_told(forge: CommandLine, in_store: InStore) -> None:
    async def lose(storage: Storage) -> None:
        lease = await register(storage, lease_for=timedelta(seconds=0.2))
        await enqueue_one(storage)
        await claim_one(storage, lease)
        while (await storage.procs.pods())[0].lease_remaining:
            await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=0.05))

    in_store(lose)

    finding = found(forge, "pods")

    assert finding["text"].startswith("no live pod since 20")
    assert "1 lost with 1 job in progress, to be revived by a live pod" in finding["text"]


def test_of_many_queues_the_worst_are_described(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "_DESCRIBED", 2)
    for name in ("a", "b", "c", "d"):
        forge("queues", "set", name, "--max-workers", "0")

    told = [each for each in forge.json("doctor")["findings"] if each["check"] == "max-workers"]

    assert [each["text"] for each in told[2:]] == ["and 2 queues more"]
    assert told[2]["help"] == "forge-jobs queues list"


def test_records_that_cannot_be_read(forge: CommandLine, in_store: InStore) -> None:
    async def store(storage: Storage) -> None:
        await serve(storage)
        spec = ScheduleSpec(name="nightly", queue=QUEUE, kind=KIND, expression="@daily")
        await storage.cron.put_schedule(spec, None)
        await storage.config.set_rate_limit("upstream", RateLimit(10, 1))

    in_store(store)
    with closing(sqlite3.connect(forge.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE forge_queues SET retention = '{'")
        connection.execute("UPDATE forge_schedules SET spec = '{'")
        connection.execute("UPDATE forge_rate_limits SET capacity = 'x'")
        connection.execute("UPDATE forge_pods SET kinds = '{'")

    told = {each["check"]: each for each in forge.json("doctor", code=1)["findings"]}

    states = {
        each: told[each]["state"] for each in ("settings", "schedules", "rate limits", "pods")
    }
    assert states == {
        "settings": "fail",
        "schedules": "fail",
        "rate limits": "fail",
        "pods": "warn",
    }
    assert told["settings"]["text"].startswith(f"the record of '{QUEUE}' cannot be read")
    assert told["settings"]["help"] == f"forge-jobs queues set {QUEUE} --help"
    assert "'nightly' (spec is '{'" in told["schedules"]["text"]
    assert "'upstream' (capacity is 'x'" in told["rate limits"]["text"]
    assert "kinds is '{'" in told["pods"]["text"]
    assert "cannot be read: retention is '{'" in forge("queues", "list").stdout
    assert "cannot be read: spec is '{'" in forge("cron", "list").stdout
    forge.json("queues", "list")
    forge.json("cron", "list")
    forge("queues", "set", QUEUE, "--keep-done", "1d")
    forge("cron", "delete", "nightly")
    told = {each["check"]: each for each in forge.json("doctor", code=1)["findings"]}
    assert (told["settings"]["state"], told["schedules"]["state"]) == ("ok", "ok")
