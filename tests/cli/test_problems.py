"""``forge-jobs problems``: the list, the exit code, and the JSON."""

from datetime import timedelta

import anyio

from forge_jobs.clock import from_us
from forge_jobs.model.processes import AllocationChange, Slots
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support.clocks import WrongClock
from tests.support.factories import enqueue_one, register

TWO_HOURS_AGO = WrongClock(-timedelta(hours=2))


async def plant(url: str, *, paused: bool) -> None:
    """A job that is due for two hours, in a queue that is not served, or paused."""
    async with await open_storage(url, clock=TWO_HOURS_AGO) as storage:
        if paused:
            lease = await register(storage, lease_for=timedelta(days=1))
            await storage.cron.lead(lease.host_id, timedelta(days=1))
            [allocation] = await storage.procs.allocations()
            given = {lease.host_id: Slots(1, 1)}
            change = AllocationChange(queue="default", version=allocation.version, slots=given)
            assert await storage.procs.allocate([change]) == [True]
        await enqueue_one(storage)
        if paused:
            await storage.config.set_paused("default", True)


def test_nothing_is_wrong_in_an_empty_store(forge: CommandLine) -> None:
    assert forge("problems").stdout == "Nothing is wrong.\n"
    assert forge.json("problems") == {"ok": True, "problems": []}


def test_what_must_be_put_right_is_told_and_makes_the_exit_code_one(forge: CommandLine) -> None:
    before = from_us(TWO_HOURS_AGO.time_us())
    anyio.run(lambda: plant(forge.url, paused=False))

    [problem] = forge.json("problems", code=1)["problems"]
    assert problem["code"] == "unserved_queue"
    assert problem["severity"] == "critical"
    assert problem["command"] == "forge-jobs worker MODULE:ATTR --queues default"
    assert f"{before:%Y-%m-%dT%H:}" <= problem["since"]
    told = forge("problems", code=1).stdout.splitlines()
    assert told[0].startswith("critical:  ")
    assert told[0].endswith("Queue default is not served. 1 job waits, the oldest for 2 h.")
    assert [line.partition(":")[0] for line in told[1:]] == [
        "problem",
        "since",
        "why",
        "safe to do",
        "command",
    ]


def test_of_problems_that_are_alike_five_are_shown_and_the_others_counted(
    forge: CommandLine,
) -> None:
    async def plant_many() -> None:
        async with await open_storage(forge.url, clock=TWO_HOURS_AGO) as storage:
            for number in range(7):
                await enqueue_one(storage, queue=f"q{number}")

    anyio.run(plant_many)
    more = "and 2 more of unserved_queue: forge-jobs problems --all"
    told = forge("problems", code=1).stdout
    assert told.count("is not served") == 5
    assert told.endswith(f"\n\n{more}\n")
    assert forge("problems", "--all", code=1).stdout.count("is not served") == 7
    assert len(forge.json("problems", code=1)["problems"]) == 7
    screen = forge("top", "--once").stdout
    assert screen.count("is not served") == 5
    assert more in screen


def test_what_may_be_meant_so_is_told_and_all_is_well(forge: CommandLine) -> None:
    anyio.run(lambda: plant(forge.url, paused=True))

    document = forge.json("problems")
    assert document["ok"] is True
    assert [each["code"] for each in document["problems"]] == ["paused_with_work"]
    forge("queues", "resume", "default")
    assert forge.json("problems")["ok"] is True
