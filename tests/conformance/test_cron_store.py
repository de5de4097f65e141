"""The leader lease and schedules: ``CronStore``."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.jobs import Unique
from forge_jobs.model.schedules import Firing
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    MICROSECOND,
    QUEUE,
    SECOND,
    done,
    get_job,
    new_job,
    register,
    run_one,
)
from tests.support.firings import (
    HOUR,
    NAME,
    a_spec,
    declared,
    fire,
    job_count,
    occurrence,
    stored,
)

pytestmark = pytest.mark.anyio

# -- declaring and editing ---------------------------------------------------------------------


async def test_a_schedule_comes_back_as_it_was_declared(
    storage: Storage, clock: ManualClock
) -> None:
    spec = a_spec(
        expression="*/5 * * * * *",
        payload='{"a": "ü\\u0007"}',
        timezone="Europe/Berlin",
        jitter=timedelta(seconds=3, microseconds=1),
        catch_up="all",
        window=timedelta(days=9),
        overlap="skip",
        priority=-7,
        max_attempts=None,
        timeout=timedelta(milliseconds=1500),
        tags=("x", "y z"),
        metadata='{"k": "v"}',
    )
    next_at = clock.now() + timedelta(microseconds=1)
    made = await storage.cron.ensure_schedule(spec, next_at)
    assert made.spec == spec
    assert (made.next_at, made.last_fired_at) == (next_at, None)
    assert (made.paused, made.edited, made.fired, made.skipped, made.error) == (
        False,
        False,
        0,
        0,
        "",
    )
    assert await stored(storage) == made
    assert await storage.cron.schedules() == [made]


async def test_a_schedule_without_a_next_occurrence_can_be_declared(storage: Storage) -> None:
    assert (await storage.cron.ensure_schedule(a_spec(), None)).next_at is None


async def test_declaring_the_same_spec_again_changes_nothing(
    storage: Storage, clock: ManualClock
) -> None:
    before = await declared(storage, clock)
    assert await declared(storage, clock, due_in=2 * HOUR) == before
    assert await stored(storage) == before


async def test_declaring_another_spec_replaces_it_with_its_next_occurrence(
    storage: Storage, clock: ManualClock
) -> None:
    before = await declared(storage, clock)
    after = await declared(storage, clock, due_in=2 * HOUR, expression="@daily")
    assert after.spec.expression == "@daily"
    assert after.next_at == clock.now() + 2 * HOUR
    assert after.version != before.version
    assert not after.edited


@pytest.mark.parametrize("verb", ["ensure_schedule", "put_schedule"])
async def test_an_occurrence_that_was_missed_survives_a_change_of_all_but_the_times(
    storage: Storage, clock: ManualClock, verb: str
) -> None:
    before = await declared(storage, clock)
    clock.advance(2 * HOUR)
    changed = a_spec(payload='{"n": 2}', queue="other", catch_up="all", priority=3)
    after = await getattr(storage.cron, verb)(changed, clock.now() + HOUR)
    assert (after.spec, after.next_at) == (changed, before.next_at)
    [due] = (await storage.cron.due_schedules(10)).schedules
    assert due == after
    other_zone = a_spec(timezone="Asia/Tokyo")
    after = await getattr(storage.cron, verb)(other_zone, clock.now() + HOUR)
    assert after.next_at == clock.now() + HOUR


async def test_an_edit_survives_a_redeploy(storage: Storage, clock: ManualClock) -> None:
    await declared(storage, clock)
    edited = await storage.cron.put_schedule(a_spec(expression="@weekly"), clock.now() + DAY)
    assert edited.edited
    assert (edited.spec.expression, edited.next_at) == ("@weekly", clock.now() + DAY)
    assert await declared(storage, clock, expression="@daily") == edited
    assert await declared(storage, clock) == edited


async def test_an_edit_creates_a_schedule(storage: Storage, clock: ManualClock) -> None:
    made = await storage.cron.put_schedule(a_spec(), clock.now() + HOUR)
    assert (made.edited, made.next_at) == (True, clock.now() + HOUR)


async def test_each_write_changes_the_version(storage: Storage, clock: ManualClock) -> None:
    versions = [(await declared(storage, clock)).version]
    versions.append((await declared(storage, clock, kind="other")).version)
    versions.append((await storage.cron.put_schedule(a_spec(), clock.now())).version)
    versions.append((await storage.cron.pause_schedule(NAME, True, None)).version)
    versions.append((await storage.cron.pause_schedule(NAME, False, clock.now())).version)
    assert await fire(storage, await stored(storage))
    versions.append((await stored(storage)).version)
    await storage.cron.delete_schedule(NAME)
    versions.append((await storage.cron.put_schedule(a_spec(), clock.now())).version)
    assert len(set(versions)) == len(versions)


# -- pausing and deleting ----------------------------------------------------------------------


async def test_a_paused_schedule_has_no_next_occurrence_and_is_not_due(
    storage: Storage, clock: ManualClock
) -> None:
    await declared(storage, clock, due_in=timedelta(0))
    paused = await storage.cron.pause_schedule(NAME, True, clock.now())
    assert (paused.paused, paused.next_at) == (True, None)
    assert (await storage.cron.due_schedules(10)).schedules == ()
    resumed = await storage.cron.pause_schedule(NAME, False, clock.now() + HOUR)
    assert (resumed.paused, resumed.next_at) == (False, clock.now() + HOUR)


async def test_neither_an_edit_nor_a_redeploy_ends_a_pause(
    storage: Storage, clock: ManualClock
) -> None:
    await declared(storage, clock)
    await storage.cron.pause_schedule(NAME, True, None)
    after = await declared(storage, clock, due_in=timedelta(0), kind="other")
    assert (after.paused, after.next_at) == (True, None)
    after = await storage.cron.put_schedule(a_spec(kind="third"), clock.now())
    assert (after.paused, after.next_at) == (True, None)
    assert (await storage.cron.due_schedules(10)).schedules == ()


async def test_a_deleted_schedule_is_not_brought_back_by_a_redeploy(
    storage: Storage, clock: ManualClock
) -> None:
    await declared(storage, clock, due_in=timedelta(0))
    await storage.cron.delete_schedule(NAME)
    for kind in (KIND, "other"):
        await declared(storage, clock, due_in=timedelta(0), kind=kind)
        assert await storage.cron.get_schedule(NAME) is None
        assert await storage.cron.schedules() == []
        [deleted] = await storage.cron.schedules(with_deleted=True)
        assert (deleted.spec.name, deleted.deleted, deleted.next_at) == (NAME, True, None)
        assert (await storage.cron.due_schedules(10)).schedules == ()


async def test_an_edit_brings_a_deleted_schedule_back_anew(
    storage: Storage, clock: ManualClock
) -> None:
    await fire(storage, await declared(storage, clock), new_job())
    await storage.cron.pause_schedule(NAME, True, None)
    await storage.cron.delete_schedule(NAME)
    back = await storage.cron.put_schedule(a_spec(), clock.now() + HOUR)
    assert (back.paused, back.edited, back.fired, back.last_fired_at) == (False, True, 0, None)
    assert back.next_at == clock.now() + HOUR
    assert await stored(storage) == back


async def test_unknown_and_deleted_schedules_are_errors_that_name_them(
    storage: Storage, clock: ManualClock
) -> None:
    await declared(storage, clock, name="gone")
    await storage.cron.delete_schedule("gone")
    for name in ("nowhere", "gone"):
        with pytest.raises(NotFound, match=name):
            await storage.cron.pause_schedule(name, True, None)
        with pytest.raises(NotFound, match=name):
            await storage.cron.delete_schedule(name)
        with pytest.raises(NotFound, match=name):
            await storage.cron.trigger(name, new_job())
        assert await storage.cron.get_schedule(name) is None
    assert await job_count(storage) == 0


async def test_schedules_are_listed_by_name(storage: Storage, clock: ManualClock) -> None:
    for name in ("b", "Z", "a"):
        await declared(storage, clock, name=name)
    assert [found.spec.name for found in await storage.cron.schedules()] == ["Z", "a", "b"]
    await storage.cron.delete_schedule("a")
    everything = await storage.cron.schedules(with_deleted=True)
    assert [(found.spec.name, found.deleted) for found in everything] == [
        ("Z", False),
        ("a", True),
        ("b", False),
    ]


# -- due ---------------------------------------------------------------------------------------


async def test_a_schedule_is_due_from_its_next_occurrence_on(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=HOUR)
    clock.advance(HOUR - MICROSECOND)
    due = await storage.cron.due_schedules(10)
    assert (due.now, due.schedules, due.next_in) == (clock.now(), (), MICROSECOND)
    clock.advance(MICROSECOND)
    due = await storage.cron.due_schedules(10)
    assert (due.now, due.schedules, due.next_in) == (clock.now(), (made,), None)


async def test_due_schedules_come_earliest_first_up_to_the_limit(
    storage: Storage, clock: ManualClock
) -> None:
    for name, seconds in (("c", 3), ("a", 2), ("b", 1), ("later", 100)):
        await declared(storage, clock, name=name, due_in=seconds * SECOND)
    await declared(storage, clock, name="never")
    await storage.cron.pause_schedule("never", True, None)
    clock.advance(10)
    due = await storage.cron.due_schedules(2)
    assert [found.spec.name for found in due.schedules] == ["b", "a"]
    assert due.next_in == timedelta(0)
    due = await storage.cron.due_schedules(3)
    assert [found.spec.name for found in due.schedules] == ["b", "a", "c"]
    assert due.next_in == 90 * SECOND


async def test_without_schedules_nothing_is_next(storage: Storage) -> None:
    due = await storage.cron.due_schedules(10)
    assert (due.schedules, due.next_in) == ((), None)


# -- firing ------------------------------------------------------------------------------------


async def test_firing_enqueues_and_advances_in_one_step(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    assert made.next_at is not None
    job = occurrence(made, made.next_at)
    assert await fire(storage, made, job, skipped=3)
    after = await stored(storage)
    assert after.next_at == made.next_at + HOUR
    assert (after.last_fired_at, after.fired, after.skipped) == (made.next_at, 1, 3)
    assert (await get_job(storage, job.id)).schedule == NAME
    lease = await register(storage)
    assert await run_one(storage, lease, done()) == job.id


async def test_a_firing_by_an_old_version_writes_nothing(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    assert await fire(storage, made, new_job())
    after = await stored(storage)
    assert not await fire(storage, made, new_job())
    assert await stored(storage) == after
    assert await job_count(storage) == 1


@pytest.mark.parametrize("change", ["edit", "pause", "delete"])
async def test_an_operator_who_came_first_stops_the_firing(
    storage: Storage, clock: ManualClock, change: str
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    if change == "edit":
        await storage.cron.put_schedule(a_spec(expression="@daily"), clock.now() + DAY)
    elif change == "pause":
        await storage.cron.pause_schedule(NAME, True, None)
    else:
        await storage.cron.delete_schedule(NAME)
    assert not await fire(storage, made, new_job())
    assert await job_count(storage) == 0


async def test_of_many_firings_of_one_occurrence_one_enqueues(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    written = await asyncio.gather(*(fire(storage, made, new_job()) for _ in range(10)))
    assert sum(written) == 1
    assert await job_count(storage) == 1
    assert (await stored(storage)).fired == 1


async def test_firings_of_unknown_schedules_are_refused(storage: Storage) -> None:
    nowhere = Firing(name="nowhere", version=1, jobs=(new_job(),), next_at=None)
    assert await storage.cron.fire([nowhere]) == [False]
    assert await job_count(storage) == 0


async def test_a_duplicate_of_a_unique_key_counts_as_skipped(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0), overlap="skip")
    first_at = made.next_at
    assert first_at is not None
    key = Unique("schedule:nightly")
    assert await fire(storage, made, occurrence(made, first_at, unique=key))
    again = await stored(storage)
    assert again.next_at is not None
    assert await fire(storage, again, occurrence(again, again.next_at, unique=key))
    after = await stored(storage)
    assert (after.fired, after.skipped, after.last_fired_at) == (1, 1, first_at)
    assert after.next_at == again.next_at + HOUR
    assert await job_count(storage) == 1


async def test_a_repeat_of_an_id_counts_as_neither(storage: Storage, clock: ManualClock) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    assert made.next_at is not None
    job = occurrence(made, made.next_at)
    await storage.jobs.enqueue([job])
    assert await fire(storage, made, job)
    after = await stored(storage)
    assert (after.fired, after.skipped) == (0, 0)
    assert await job_count(storage) == 1


async def test_several_occurrences_are_enqueued_by_one_firing(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    jobs = [occurrence(made, clock.now() - number * HOUR) for number in range(5)]
    assert await fire(storage, made, *jobs)
    assert (await stored(storage)).fired == 5
    assert await job_count(storage) == 5


async def test_a_firing_without_jobs_advances_and_counts_what_was_skipped(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    assert await fire(storage, made, skipped=12)
    after = await stored(storage)
    assert (after.fired, after.skipped, after.last_fired_at) == (0, 12, None)


async def test_a_firing_may_be_the_last(storage: Storage, clock: ManualClock) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    assert await fire(storage, made, new_job(), next_at=None)
    assert (await stored(storage)).next_at is None
    clock.advance(10_000 * DAY)
    assert (await storage.cron.due_schedules(10)).schedules == ()


async def test_an_error_disables_the_schedule_alone_until_it_is_edited(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    await declared(storage, clock, name="other", due_in=timedelta(0))
    assert await fire(storage, made, next_at=None, error="bad expression")
    broken = await stored(storage)
    assert (broken.error, broken.next_at) == ("bad expression", None)
    due = await storage.cron.due_schedules(10)
    assert [found.spec.name for found in due.schedules] == ["other"]
    assert (await declared(storage, clock, due_in=timedelta(0))).error == "bad expression"
    mended = await storage.cron.put_schedule(a_spec(), clock.now())
    assert mended.error == ""
    assert len((await storage.cron.due_schedules(10)).schedules) == 2


async def test_resuming_a_disabled_schedule_does_not_enable_it(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    assert await fire(storage, made, next_at=None, error="bad expression")
    await storage.cron.pause_schedule(NAME, True, None)
    resumed = await storage.cron.pause_schedule(NAME, False, clock.now())
    assert resumed.error == "bad expression"
    assert (await storage.cron.due_schedules(10)).schedules == ()


async def test_a_firing_whose_jobs_cannot_be_stored_advances_nothing(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    taken = new_job(payload='{"a": 1}')
    await storage.jobs.enqueue([taken])
    contradiction = new_job(id=taken.id, payload='{"a": 2}')
    with pytest.raises(Conflict):
        await fire(storage, made, new_job(), contradiction)
    assert await stored(storage) == made
    assert await job_count(storage) == 1


async def test_firing_wakes_the_queue_of_its_job(storage: Storage, clock: ManualClock) -> None:
    made = await declared(storage, clock, due_in=timedelta(0))
    await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(0))
    assert await fire(storage, made, new_job())
    wake = await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(seconds=20))
    assert wake.queues == {QUEUE}


# -- triggering --------------------------------------------------------------------------------


async def test_a_trigger_enqueues_out_of_turn_and_keeps_the_next_occurrence(
    storage: Storage, clock: ManualClock
) -> None:
    made = await declared(storage, clock)
    job = new_job(schedule=NAME)
    outcome = await storage.cron.trigger(NAME, job)
    assert (outcome.job_id, outcome.deduplicated) == (job.id, False)
    after = await stored(storage)
    assert (after.next_at, after.last_fired_at) == (made.next_at, None)
    assert (after.fired, after.skipped) == (1, 0)


async def test_a_trigger_follows_the_overlap_rule_like_any_other(
    storage: Storage, clock: ManualClock
) -> None:
    await declared(storage, clock, overlap="skip")
    key = Unique("schedule:nightly")
    first = await storage.cron.trigger(NAME, new_job(unique=key))
    second = await storage.cron.trigger(NAME, new_job(unique=key))
    assert (second.job_id, second.deduplicated) == (first.job_id, True)
    after = await stored(storage)
    assert (after.fired, after.skipped) == (1, 1)


async def test_a_repeated_trigger_counts_once(storage: Storage, clock: ManualClock) -> None:
    await declared(storage, clock)
    job = new_job()
    for _ in range(2):
        assert not (await storage.cron.trigger(NAME, job)).deduplicated
    assert (await stored(storage)).fired == 1


async def test_a_paused_schedule_can_be_triggered(storage: Storage, clock: ManualClock) -> None:
    await declared(storage, clock)
    await storage.cron.pause_schedule(NAME, True, None)
    await storage.cron.trigger(NAME, new_job())
    after = await stored(storage)
    assert (after.paused, after.next_at, after.fired) == (True, None, 1)
