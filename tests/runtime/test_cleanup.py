"""Cleanup removes everything that is due for removal, a bounded piece at a time."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.retention import Cleaned, Kept
from forge_jobs.runtime.passes.cleanup import Cleanup
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, done, enqueue_one, register, run_one
from tests.support.runtimes import a_runtime, ended, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_finished_jobs_past_retention_go_and_the_others_stay(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage, lease_for=30 * DAY)
    for _ in range(5):
        await enqueue_one(manual_storage)
    old = [await run_one(manual_storage, lease, done()) for _ in range(5)]
    waiting = await enqueue_one(manual_storage)
    manual_clock.advance(8 * DAY)
    young = await enqueue_one(manual_storage)

    cleanup = Cleanup(manual_storage.jobs, batch=2)
    reports = [await cleanup.go_on()]
    while reports[-1].next_in is not None:
        reports.append(await cleanup.go_on())

    assert len(reports) >= 3
    assert sum(report.rows for report in reports) >= 5
    assert set(await manual_storage.jobs.get([*old, waiting, young])) == {waiting, young}
    assert (await cleanup.go_on()).rows == 0


class Endless:
    """A store with more to remove than a batch can."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    async def cleanup(self, limit: int, rest: object | None = None, **options: object) -> Cleaned:
        self.calls.append(rest)
        return Cleaned(removed=limit, rest=len(self.calls))


async def test_a_pass_goes_on_where_the_batch_before_ended(
    manual_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = Endless()
    monkeypatch.setattr(manual_storage.jobs, "cleanup", endless.cleanup)
    cleanup = Cleanup(manual_storage.jobs)
    for _ in range(3):
        report = await cleanup.go_on()
        assert report.next_in is not None
    assert endless.calls == [None, 1, 2]
    cleanup.give_up()
    await cleanup.go_on()
    assert endless.calls[3] is None


async def test_a_pod_removes_the_history_by_its_settings_and_records_no_events_that_go_at_once(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, kept = HandlerRegistry(), list[Kept]()

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise RuntimeError

    async def noted(limit: int, rest: object | None = None, **options: Kept) -> Cleaned:
        kept.append(options["kept"])
        return Cleaned(removed=0)

    monkeypatch.setattr(storage.jobs, "cleanup", noted)
    wanted = Kept(events=0 * DAY, minutes=DAY / 12, hours=3 * DAY)
    settings = quick_settings(
        cleanup_interval=seconds(0.1),
        keep_events=wanted.events,
        keep_minutes=wanted.minutes,
        keep_hours=wanted.hours,
    )
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        await ended(storage, (await handle.enqueue(fails.request())).job_id)
        await wait_until(lambda: kept, description="the leading pod cleans up")
    assert set(kept) == {wanted}
    assert await storage.jobs.events() == []


async def test_what_holds_jobs_is_told_once(
    manual_storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [new_job_id() for _ in range(3)]

    async def held(limit: int, rest: object | None = None, **options: object) -> Cleaned:
        return Cleaned(removed=0, held=dict.fromkeys(ids, "constraint of_a_job of table orders"))

    monkeypatch.setattr(manual_storage.jobs, "cleanup", held)
    cleanup = Cleanup(manual_storage.jobs)
    for _ in range(3):
        await cleanup.go_on()
    [line] = caplog.messages
    assert ids[0] in line
    assert "of_a_job of table orders" in line
