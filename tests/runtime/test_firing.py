"""A pass that fires many schedules: in few calls, and a failure delays no other schedule."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from forge_jobs import EnqueueRequest, RuntimeSettings
from forge_jobs.clients.schedules import ensure_schedules, schedule
from forge_jobs.clock import ManualClock, to_us
from forge_jobs.errors import StorageError
from forge_jobs.model.ids import occurrence_job_id
from forge_jobs.model.schedules import Firing, Schedule, ScheduleSpec
from forge_jobs.policy.cron import FiringPlan, plan_firing
from forge_jobs.runtime.passes import cron as cron_module
from forge_jobs.runtime.passes.cron import FIRE_BATCH, FireReport, fire_due_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, KIND, QUEUE, new_job

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

MINUTE = timedelta(minutes=1)


def a_spec(name: str, **options: object) -> ScheduleSpec:
    return schedule(name, EnqueueRequest(KIND, queue=QUEUE), "* * * * *", **options)  # type: ignore[arg-type]


async def fire(storage: Storage) -> FireReport:
    return await fire_due_once(storage.cron, RuntimeSettings(), random.Random(1))


async def test_an_id_that_is_taken_keeps_none_of_a_hundred_others_from_firing(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [a_spec(f"s{number}") for number in range(FIRE_BATCH)]
    declared = await ensure_schedules(manual_storage.cron, specs)
    manual_clock.advance(MINUTE)
    taken = new_job(
        id=occurrence_job_id("s41", to_us(manual_clock.now())), payload='{"other": true}'
    )
    assert all(one.next_at == manual_clock.now() for one in declared)
    await manual_storage.jobs.enqueue([taken])
    cron = manual_storage.cron
    write = cron.fire
    calls: list[int] = []

    async def counted(firings: Sequence[Firing]) -> list[bool]:
        calls.append(len(firings))
        return await write(firings)

    monkeypatch.setattr(cron, "fire", counted)
    report = await fire(manual_storage)

    assert (report.fired, report.skipped) == (FIRE_BATCH - 1, 1)
    assert (await manual_storage.jobs.counts([QUEUE]))[QUEUE].due == FIRE_BATCH
    # Found by halves, not by a call for each. One more call goes past the taken id.
    assert len(calls) <= 2 * FIRE_BATCH.bit_length() + 2


async def test_many_schedules_that_cannot_be_planned_keep_no_other_from_firing(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [a_spec(f"bad{number}") for number in range(FIRE_BATCH)]
    await ensure_schedules(manual_storage.cron, [*bad, a_spec("good")])
    manual_clock.advance(MINUTE)

    def fails(due: Schedule, now: datetime, rng: random.Random) -> FiringPlan:
        if due.spec.name.startswith("bad"):
            raise RuntimeError("no")
        return plan_firing(due, now, rng)

    monkeypatch.setattr(cron_module, "plan_firing", fails)
    with pytest.raises(StorageError, match="'bad0' \\(no\\)"):
        await fire(manual_storage)

    assert (await manual_storage.jobs.counts([QUEUE]))[QUEUE].due == 1


async def test_a_store_that_refuses_everything_is_not_asked_for_ever(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cron_module, "FIRE_BATCH", 4)
    monkeypatch.setattr(cron_module, "MOST_FAILURES", 8)
    await ensure_schedules(manual_storage.cron, [a_spec(f"s{number}") for number in range(30)])
    manual_clock.advance(MINUTE)
    refused: list[int] = []

    async def refuse(firings: Sequence[Firing]) -> list[bool]:
        refused.append(len(firings))
        raise StorageError("no")

    monkeypatch.setattr(manual_storage.cron, "fire", refuse)
    with pytest.raises(StorageError, match="'s0' \\(no\\)"):
        await fire(manual_storage)

    assert refused.count(1) == 8


async def test_catching_up_many_schedules_makes_no_call_without_bounds(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cron_module, "PLANNED_AT_ONCE", 30)
    specs = [a_spec(f"s{number}", catch_up="all", window=DAY) for number in range(12)]
    await ensure_schedules(manual_storage.cron, specs)
    manual_clock.advance(20 * MINUTE)
    cron = manual_storage.cron
    write = cron.fire
    calls: list[int] = []

    async def counted(firings: Sequence[Firing]) -> list[bool]:
        calls.append(sum(len(firing.jobs) for firing in firings))
        return await write(firings)

    monkeypatch.setattr(cron, "fire", counted)

    assert (await fire(manual_storage)).fired == 12 * 20
    assert calls == [40] * 6
