"""Many firings in one call: each for itself, and none of them when a job is refused."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Unique
from forge_jobs.storage.protocols import Storage
from tests.support.factories import MICROSECOND, new_job
from tests.support.firings import HOUR, declared, firing, job_count, stored

pytestmark = pytest.mark.anyio


async def test_firings_of_one_call_are_independent(storage: Storage, clock: ManualClock) -> None:
    fresh = await declared(storage, clock, name="fresh")
    stale = await declared(storage, clock, name="stale")
    await declared(storage, clock, name="stale", kind="changed")
    also = await declared(storage, clock, name="also")
    firings = [firing(schedule, new_job()) for schedule in (fresh, stale, also)]
    assert await storage.cron.fire(firings) == [True, False, True]
    assert await job_count(storage) == 2
    assert await storage.cron.fire([]) == []


async def test_of_two_firings_of_a_schedule_in_one_call_the_first_holds(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    first, second = new_job(), new_job()
    assert await storage.cron.fire([firing(made, first), firing(made, second)]) == [True, False]
    assert (await stored(storage)).fired == 1
    assert [job.id for job in (await storage.jobs.list(JobFilter(), limit=10)).jobs] == [first.id]


async def test_the_jobs_of_a_firing_that_does_not_hold_are_not_looked_at(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    taken = new_job(payload='{"a": 1}')
    await storage.jobs.enqueue([taken])
    refused = firing(made, new_job(id=taken.id, payload='{"a": 2}'))
    assert await storage.cron.fire([firing(made, new_job()), refused]) == [True, False]
    assert await storage.cron.fire([refused]) == [False]
    assert await job_count(storage) == 2


async def test_a_hundred_firings_of_one_call_count_each_for_its_own_schedule(
    storage: Storage, clock: ManualClock
) -> None:
    schedules = [
        await declared(storage, clock, name=f"s{number}", due_in=number * MICROSECOND)
        for number in range(100)
    ]
    await storage.jobs.enqueue([new_job(unique=Unique("taken"))])
    firings = [
        firing(
            schedule,
            *(new_job(schedule=schedule.spec.name) for _ in range(number % 3)),
            *(new_job(unique=Unique("taken")) for _ in range(number % 2)),
            skipped=number,
        )
        for number, schedule in enumerate(schedules)
    ]
    assert await storage.cron.fire(firings) == [True] * 100
    for number, before in enumerate(schedules):
        after = await stored(storage, f"s{number}")
        assert (after.fired, after.skipped) == (number % 3, number + number % 2)
        assert before.next_at is not None
        assert after.next_at == before.next_at + HOUR
        assert after.last_fired_at == (before.next_at if number % 3 else None)
        jobs = await storage.jobs.list(JobFilter(schedule=f"s{number}"), limit=10)
        assert len(jobs.jobs) == number % 3


async def test_calls_that_fire_the_same_schedules_at_once_fire_each_once(
    storage: Storage, clock: ManualClock
) -> None:
    made = [
        await declared(storage, clock, name=f"s{number}", due_in=timedelta(0))
        for number in range(40)
    ]

    async def call(number: int) -> list[str]:
        some = made[number:] + made[:number] if number % 2 else made[::-1]
        answers = await storage.cron.fire([firing(each, new_job()) for each in some])
        return [each.spec.name for each, did in zip(some, answers, strict=True) if did]

    fired = await asyncio.gather(*(call(number) for number in range(8)))
    assert sorted(name for names in fired for name in names) == sorted(
        each.spec.name for each in made
    )
    assert await job_count(storage) == len(made)


async def test_a_refused_job_keeps_every_firing_of_its_call_from_being_written(
    storage: Storage, clock: ManualClock
) -> None:
    schedules = [
        await declared(storage, clock, name=name, due_in=timedelta(0)) for name in ("a", "b", "c")
    ]
    taken = new_job(payload='{"a": 1}')
    await storage.jobs.enqueue([taken])
    jobs = (new_job(), new_job(id=taken.id, payload='{"a": 2}'), new_job(queue="elsewhere"))
    firings = [firing(each, job) for each, job in zip(schedules, jobs, strict=True)]
    with pytest.raises(Conflict):
        await storage.cron.fire(firings)
    assert await storage.cron.schedules() == schedules
    assert await job_count(storage) == 1
    assert await storage.cron.fire([firings[0], firings[2]]) == [True, True]
