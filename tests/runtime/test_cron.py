"""The occurrences of schedules each fire once, and no schedule harms another."""

import random
import time
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forge_jobs.clients.schedules import (
    ensure_schedules,
    pause_schedule,
    put_schedule,
    resume_schedule,
    schedule,
    trigger_now,
)
from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import NotFound, StorageError, Unavailable
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from forge_jobs.runtime.passes import cron as cron_module
from forge_jobs.runtime.passes.cron import FireReport, fire_due_once
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    QUEUE,
    SECOND,
    claim_one,
    done,
    finish,
    get_job,
    register,
)

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

SETTINGS = RuntimeSettings()
RNG = random.Random(1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def a_spec(name: str = "tick", expression: str = "* * * * *", **options: object) -> ScheduleSpec:
    return schedule(name, EnqueueRequest(KIND, queue=QUEUE), expression, **options)  # type: ignore[arg-type]


async def fire(storage: Storage, events: EventBuffer | None = None) -> FireReport:
    return await fire_due_once(storage.cron, SETTINGS, RNG, events=events)


async def jobs(storage: Storage, name: str = "tick") -> list[JobSummary]:
    """The jobs of a schedule, oldest first."""
    page = await storage.jobs.list(JobFilter(schedule=name), limit=1000)
    return list(reversed(page.jobs))


async def stored(storage: Storage, name: str = "tick") -> Schedule:
    found = await storage.cron.get_schedule(name)
    assert found is not None
    return found


async def test_an_occurrence_fires_when_it_comes_and_not_before(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    manual_clock.advance(MINUTE - timedelta(microseconds=1))
    assert (await fire(manual_storage)).fired == 0

    manual_clock.advance(timedelta(microseconds=1))
    assert (await fire(manual_storage)).fired == 1
    assert (await fire(manual_storage)).fired == 0

    [job] = await jobs(manual_storage)
    assert job.due_at == manual_clock.now()
    assert job.status is JobStatus.PENDING


async def test_a_job_carries_the_options_of_its_schedule(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    request = EnqueueRequest(
        KIND, queue=QUEUE, priority=-3, max_attempts=2, tags=["nightly"], keep_result=False
    )
    await ensure_schedules(manual_storage.cron, [schedule("tick", request, "* * * * *")])
    manual_clock.advance(MINUTE)
    await fire(manual_storage)

    [fired] = await jobs(manual_storage)
    job = (await manual_storage.jobs.get([fired.id]))[fired.id]

    assert (job.priority, job.max_attempts, job.tags) == (-3, 2, ("nightly",))
    assert not job.keep_result


async def test_a_yearly_schedule_does_not_fire_at_its_first_start(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec(expression="0 0 1 1 *")])

    assert (await fire(manual_storage)).fired == 0
    assert (await stored(manual_storage)).next_at == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("catch_up", "fired"), [("skip", 0), ("latest", 1), ("all", 24)])
async def test_after_a_year_of_downtime_the_catch_up_policy_decides(
    manual_storage: Storage, manual_clock: ManualClock, catch_up: str, fired: int
) -> None:
    spec = a_spec(expression="0 * * * *", catch_up=catch_up, window=DAY)
    await ensure_schedules(manual_storage.cron, [spec])
    manual_clock.advance(365 * DAY + 30 * MINUTE)

    report = await fire(manual_storage)

    assert report.fired == fired
    assert len(await jobs(manual_storage)) == fired
    assert report.skipped > 0
    after = await stored(manual_storage)
    assert after.next_at == manual_clock.now() + 30 * MINUTE


async def test_a_long_catch_up_is_fired_in_several_steps_of_one_pass(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    spec = a_spec(catch_up="all", window=DAY)
    await ensure_schedules(manual_storage.cron, [spec])
    manual_clock.advance(10 * HOUR)

    assert (await fire(manual_storage)).fired == 600
    assert len(await jobs(manual_storage)) == 600


async def test_an_interval_longer_than_a_process_lives_fires(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    spec = a_spec(expression="@every 48h")
    for _ in range(5):
        await ensure_schedules(manual_storage.cron, [spec])
        await fire(manual_storage)
        manual_clock.advance(11 * HOUR)

    assert (await fire(manual_storage)).fired == 1


async def test_a_crash_between_reading_and_writing_loses_and_doubles_nothing(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    manual_clock.advance(MINUTE)
    cron = manual_storage.cron
    write = cron.fire

    async def killed_before(firings: Sequence[Firing]) -> list[bool]:
        raise KeyboardInterrupt

    async def killed_after(firings: Sequence[Firing]) -> list[bool]:
        await write(firings)
        raise KeyboardInterrupt

    for killed in (killed_before, killed_after):
        monkeypatch.setattr(cron, "fire", killed)
        with pytest.raises(KeyboardInterrupt):
            await fire(manual_storage)
    monkeypatch.setattr(cron, "fire", write)

    assert (await fire(manual_storage)).fired == 0
    assert len(await jobs(manual_storage)) == 1


async def test_coordinators_that_read_the_same_fire_once(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    manual_clock.advance(MINUTE)
    cron = manual_storage.cron
    read = cron.due_schedules

    async def read_then_overtaken(limit: int) -> DueSchedules:
        due = await read(limit)
        monkeypatch.setattr(cron, "due_schedules", read)
        assert (await fire(manual_storage)).fired == 1
        return due

    monkeypatch.setattr(cron, "due_schedules", read_then_overtaken)

    assert (await fire(manual_storage)).fired == 0
    assert len(await jobs(manual_storage)) == 1


async def test_hundreds_of_schedules_due_in_one_second_fire_once_each(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    specs = [a_spec(f"s{number}") for number in range(350)]
    await ensure_schedules(manual_storage.cron, specs)
    manual_clock.advance(MINUTE)

    assert (await fire(manual_storage)).fired == 350

    counts = await manual_storage.jobs.counts([QUEUE])
    assert counts[QUEUE].due == 350


async def test_an_error_of_enqueue_keeps_the_schedule_enabled_and_is_tried_again(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec("bad"), a_spec("good")])
    manual_clock.advance(MINUTE)
    cron = manual_storage.cron
    write = cron.fire

    async def refuse_bad(firings: Sequence[Firing]) -> list[bool]:
        if any(firing.name == "bad" for firing in firings):
            raise StorageError("no")
        return await write(firings)

    monkeypatch.setattr(cron, "fire", refuse_bad)
    with pytest.raises(StorageError, match="'bad' \\(no\\)"):
        await fire(manual_storage)
    assert len(await jobs(manual_storage, "good")) == 1
    assert (await stored(manual_storage, "bad")).error == ""

    monkeypatch.setattr(cron, "fire", write)
    assert (await fire(manual_storage)).fired == 1
    assert len(await jobs(manual_storage, "bad")) == 1


async def test_a_store_that_is_down_is_told_as_such(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    manual_clock.advance(MINUTE)
    cron = manual_storage.cron
    write = cron.fire

    async def down(firings: Sequence[Firing]) -> list[bool]:
        raise Unavailable("down")

    monkeypatch.setattr(cron, "fire", down)
    with pytest.raises(Unavailable):
        await fire(manual_storage)

    monkeypatch.setattr(cron, "fire", write)
    assert (await fire(manual_storage)).fired == 1


async def test_a_stored_bad_expression_disables_only_itself_and_shows_why(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    bad = msgspec.structs.replace(a_spec("bad"), expression="61 * * * *")
    await manual_storage.cron.ensure_schedule(bad, manual_clock.now() + MINUTE)
    await ensure_schedules(manual_storage.cron, [a_spec("good")])
    manual_clock.advance(MINUTE)
    events = EventBuffer(manual_storage.jobs, clock=manual_clock)

    report = await fire(manual_storage, events)

    assert (report.fired, report.disabled) == (1, ("bad",))
    after = await stored(manual_storage, "bad")
    assert "expression" in after.error
    assert after.next_at is None
    await events.flush_once()
    kinds = {event.kind for event in await manual_storage.jobs.events()}
    assert kinds == {EventKind.SCHEDULE_FIRED, EventKind.SCHEDULE_DISABLED}

    manual_clock.advance(MINUTE)
    assert (await fire(manual_storage)).disabled == ()
    fixed = await put_schedule(manual_storage.cron, a_spec("bad"))
    assert (fixed.error, fixed.next_at) == ("", manual_clock.now() + MINUTE)


async def test_a_skipped_overlap_is_counted_as_skipped(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage)
    await ensure_schedules(manual_storage.cron, [a_spec(overlap="skip")])
    for _ in range(2):
        manual_clock.advance(MINUTE)
        await fire(manual_storage)
    active = await stored(manual_storage)
    assert (active.fired, active.skipped) == (1, 1)

    lease = await register(manual_storage)
    claimed = await claim_one(manual_storage, lease)
    assert await finish(manual_storage, claimed, done())
    manual_clock.advance(MINUTE)
    await fire(manual_storage)

    assert (await stored(manual_storage)).fired == 2


async def test_triggering_enqueues_at_once_and_leaves_the_next_time(
    manual_storage: Storage,
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    before = await stored(manual_storage)

    first, second = [await trigger_now(manual_storage, "tick") for _ in range(2)]

    after = await stored(manual_storage)
    assert first.job_id != second.job_id
    assert (after.next_at, after.fired) == (before.next_at, 2)
    assert (await get_job(manual_storage, first.job_id)).schedule == "tick"


async def test_triggering_respects_the_overlap_rule_in_both_directions(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec(overlap="skip")])
    first = await trigger_now(manual_storage, "tick")

    second = await trigger_now(manual_storage, "tick")
    manual_clock.advance(MINUTE)
    await fire(manual_storage)

    assert (second.job_id, second.deduplicated) == (first.job_id, True)
    after = await stored(manual_storage)
    assert (after.fired, after.skipped) == (1, 2)


async def test_triggering_what_is_not_there_is_not_found(manual_storage: Storage) -> None:
    with pytest.raises(NotFound, match="'nope'"):
        await trigger_now(manual_storage, "nope")


async def test_jitter_delays_the_job_within_its_bound_and_not_the_schedule(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec(jitter=30)])
    for _ in range(20):
        manual_clock.advance(MINUTE)
        await fire(manual_storage)

    start = manual_clock.now() - 19 * MINUTE
    delays = [
        job.due_at - (start + number * MINUTE)
        for number, job in enumerate(await jobs(manual_storage))
    ]
    assert len(set(delays)) > 10
    assert all(timedelta(0) <= delay <= 30 * SECOND for delay in delays)


async def test_a_pass_says_how_long_until_the_next_occurrence(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    assert (await fire(manual_storage)).next_in == SETTINGS.cron_interval
    await ensure_schedules(manual_storage.cron, [a_spec(expression="@every 7s")])
    due = await stored(manual_storage)
    assert due.next_at is not None
    manual_clock.advance(due.next_at - 2 * SECOND - manual_clock.now())

    assert (await fire(manual_storage)).next_in == 2 * SECOND
    manual_clock.advance(2 * SECOND)
    assert (await fire(manual_storage)).next_in == SETTINGS.cron_interval


async def test_an_interval_shorter_than_a_pass_does_not_hold_it_for_ever(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cron_module, "MAX_BATCHES", 5)
    await ensure_schedules(manual_storage.cron, [a_spec(expression="@every 1s")])
    cron = manual_storage.cron
    read = cron.due_schedules

    async def slow(limit: int) -> DueSchedules:
        manual_clock.advance(SECOND)
        return await read(limit)

    monkeypatch.setattr(cron, "due_schedules", slow)

    report = await fire(manual_storage)

    assert report.fired == 5
    assert report.next_in == cron_module.SHORTEST_PAUSE


async def test_an_occurrence_that_fired_before_an_edit_is_passed_over_after_the_clock_stepped_back(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec(catch_up="all")])
    manual_clock.advance(MINUTE)
    await fire(manual_storage)
    manual_clock.step_wall(-MINUTE)
    # Other times for the store: the next occurrence is computed from now.
    edited = schedule(
        "tick", EnqueueRequest(KIND, {"edited": True}, queue=QUEUE), "*/1 * * * *", catch_up="all"
    )
    await put_schedule(manual_storage.cron, edited)

    manual_clock.advance(3 * MINUTE)
    report = await fire(manual_storage)

    assert (report.fired, report.skipped) == (2, 1)
    assert len(await jobs(manual_storage)) == 3


async def test_each_occurrence_fires_once_through_a_step_forward_and_back(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec(expression="@every 1h", catch_up="all")])
    begin = manual_clock.now()
    for step in (150 * MINUTE, -150 * MINUTE):
        manual_clock.step_wall(step)
        await fire(manual_storage)
    assert len(await jobs(manual_storage)) == 2
    # A pod that starts anew changes nothing, and what was fired ahead does not wait.
    await ensure_schedules(manual_storage.cron, [a_spec(expression="@every 1h", catch_up="all")])
    assert await manual_storage.jobs.bring_back_jobs(10) == 2

    due = []
    for _ in range(4 * 4):
        manual_clock.advance(15 * MINUTE)
        if (await fire(manual_storage)).fired:
            due.append(manual_clock.now() - begin)
    assert due == [3 * HOUR, 4 * HOUR]


async def test_an_edit_in_the_store_survives_a_redeploy(manual_storage: Storage) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    await put_schedule(manual_storage.cron, a_spec(expression="0 3 * * *"))

    [again] = await ensure_schedules(manual_storage.cron, [a_spec()])

    assert again.spec.expression == "0 3 * * *"


async def test_a_redeploy_does_not_push_the_next_occurrence_away(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    spec = a_spec(expression="@every 1h")
    await ensure_schedules(manual_storage.cron, [spec])
    before = (await stored(manual_storage)).next_at
    manual_clock.advance(50 * MINUTE)

    await ensure_schedules(manual_storage.cron, [spec])

    assert (await stored(manual_storage)).next_at == before


async def test_what_was_missed_is_fired_by_a_deploy_that_changes_the_payload(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    old, new = (EnqueueRequest("tests.noop", {"version": version}) for version in (1, 2))
    await ensure_schedules(manual_storage.cron, [schedule("tick", old, "@every 1h")])
    manual_clock.advance(90 * MINUTE)

    await ensure_schedules(manual_storage.cron, [schedule("tick", new, "@every 1h")])
    report = await fire(manual_storage)

    assert report.fired == 1
    [job] = await jobs(manual_storage)
    assert msgspec.json.decode((await get_job(manual_storage, job.id)).payload) == {"version": 2}


async def test_a_resumed_schedule_goes_on_with_its_next_occurrence_from_now(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec()])
    await pause_schedule(manual_storage.cron, "tick")
    manual_clock.advance(HOUR)
    assert (await fire(manual_storage)).fired == 0

    resumed = await resume_schedule(manual_storage.cron, "tick")

    assert (resumed.paused, resumed.next_at) == (False, manual_clock.now() + MINUTE)
    assert (await fire(manual_storage)).fired == 0
    with pytest.raises(NotFound):
        await resume_schedule(manual_storage.cron, "nope")


@pytest.fixture(params=["Pacific/Auckland", "America/New_York", "UTC"])
def process_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The process runs in another time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


async def test_next_times_do_not_depend_on_the_time_zone_of_the_process(
    process_zone: str, manual_storage: Storage
) -> None:
    spec = a_spec(expression="30 2 * * *", timezone="Europe/Berlin")

    [declared] = await ensure_schedules(manual_storage.cron, [spec])

    assert declared.next_at == datetime(2026, 1, 1, 1, 30, tzinfo=UTC)
