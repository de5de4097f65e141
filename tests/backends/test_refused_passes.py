"""A revival, a handover or a removal that the database refuses keeps no other waiting."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import StorageRefused
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.passes.bisecting import LONGEST_PAUSE_S, BisectingSender
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.runtime.passes.reaper import reap_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, dead, enqueue_one, finish, get_job, register
from tests.support.spoiling import execute

pytestmark = pytest.mark.anyio

SQL = ("sqlite", "postgres")
_TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER theirs BEFORE UPDATE ON forge_jobs WHEN NEW.id = '{id}' "
        "BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    ),
    "postgres": (
        "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '54000'; END $$",
        "CREATE TRIGGER theirs BEFORE UPDATE ON forge_jobs FOR EACH ROW WHEN (NEW.id = '{id}') "
        "EXECUTE FUNCTION theirs()",
    ),
}
_DROP = {"sqlite": "DROP TRIGGER theirs", "postgres": "DROP TRIGGER theirs ON forge_jobs"}


@pytest.mark.parametrize("backend", SQL)
async def test_a_revival(
    storage: Storage, backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await register(storage)
    for _ in range(20):
        await enqueue_one(storage)
    claimed = [one.claim for one in await claim(storage, lease, limit=20)]
    refused = claimed[7]
    await execute(
        backend, tmp_path, *(each.format(id=refused.job_id) for each in _TRIGGERS[backend])
    )
    settings = RuntimeSettings(
        lease=timedelta(microseconds=3),
        heartbeat_interval=timedelta(microseconds=1),
        fence_margin=timedelta(microseconds=2),
    )
    clock = ManualClock()
    guard = ReaperGuard(timedelta(0), timedelta(0))
    sender = BisectingSender("the revival of job", clock=clock)

    async def reap() -> int:
        report = await reap_once(
            storage.jobs, storage.procs, settings, guard, clock=clock, sweep=False, sender=sender
        )
        return len(report.revived)

    for _ in range(3):  # The guard trusts the second pass at the earliest.
        await reap()
    assert (await storage.jobs.counts())["default"].by_status["pending"] == 19
    assert (await get_job(storage, refused.job_id)).status is JobStatus.IN_PROGRESS
    told = [each.getMessage() for each in caplog.records if "is refused by the store" in each.msg]
    assert len([each for each in caplog.records if refused.job_id in each.getMessage()]) == 1, told
    [line] = sender.refusals
    assert line.startswith(f"the revival of job {refused.job_id}: ")
    await execute(backend, tmp_path, _DROP[backend])
    assert await reap() == 0
    clock.advance(timedelta(seconds=LONGEST_PAUSE_S))
    assert await reap() == 1
    assert sender.refusals == ()


@pytest.mark.parametrize("backend", SQL)
async def test_news_for_a_child(
    storage: Storage, backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await register(storage)
    parent = await enqueue_one(storage)
    children = [await enqueue_one(storage, after=(After(parent),)) for _ in range(20)]
    [claimed] = await claim(storage, lease)
    refused = children[7]
    await execute(backend, tmp_path, *(each.format(id=refused) for each in _TRIGGERS[backend]))
    assert await finish(storage, claimed, dead())
    clock = ManualClock()
    sender = BisectingSender("the handover to child", clock=clock)
    assert await hand_over_once(storage.jobs, sender) == 19
    found = await storage.jobs.get(children)
    assert [each for each in children if found[each].status is JobStatus.BLOCKED] == [refused]
    assert await hand_over_once(storage.jobs, sender) == 0
    assert len([each for each in caplog.records if refused in each.getMessage()]) == 1
    [line] = sender.refusals
    assert line.startswith("the handover to child ")
    assert refused in line
    await execute(backend, tmp_path, _DROP[backend])
    clock.advance(timedelta(seconds=LONGEST_PAUSE_S))
    assert await hand_over_once(storage.jobs, sender) == 1
    assert sender.refusals == ()


@pytest.mark.parametrize("backend", SQL)
async def test_a_removal(storage: Storage, backend: str, tmp_path: Path) -> None:
    ids = [await enqueue_one(storage) for _ in range(300)]
    await storage.jobs.cancel(JobFilter(), limit=1_000)
    refused = ids[7]
    before_delete = (
        each.replace("BEFORE UPDATE", "BEFORE DELETE")
        .replace("NEW.", "OLD.")
        .replace("ERRCODE = '54000'", "ERRCODE = 'P0001'")
        .format(id=refused)
        for each in _TRIGGERS[backend]
    )
    await execute(backend, tmp_path, *before_delete, "UPDATE forge_jobs SET finished_at = 1")
    named: dict[JobId, str] = {}
    rest: object | None = None
    for _ in range(50):
        cleaned = await storage.jobs.cleanup(1_000, rest)
        named |= cleaned.held
        if (rest := cleaned.rest) is None:
            break
    assert rest is None
    assert named.keys() == {refused}
    assert {line.id for line in (await storage.jobs.list(JobFilter())).jobs} == {refused}
    outcome = await storage.jobs.delete(JobFilter())
    assert outcome.refused == {refused: Refusal.REFERENCED}


@pytest.mark.parametrize("backend", SQL)
async def test_a_store_that_refuses_everything_is_not_asked_item_by_item(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    calls = 0

    async def refuse(items: Sequence[int]) -> int:
        nonlocal calls
        calls += 1
        raise StorageRefused("the role lacks a privilege")

    with pytest.raises(StorageRefused):
        await BisectingSender("item").send(range(500), refuse, str)
    assert calls <= 20
