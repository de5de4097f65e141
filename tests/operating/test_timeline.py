"""The timeline of a job: states, runs of a real pod, and what operators did, on every store."""

from datetime import datetime, timedelta

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.actions.editing import JobEdit
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import enqueue_one

pytestmark = pytest.mark.anyio


def operator(storage: Storage, access: Access = ALL) -> Operator:
    return Operator(storage, Actor(name="ada", access=access))


async def test_what_operators_did_to_a_job_is_on_its_timeline(storage: Storage) -> None:
    job_id, other = await enqueue_one(storage), await enqueue_one(storage)
    async with operator(storage) as boss:
        edit = await boss.edit_job(job_id, JobEdit(priority=3, reason="urgent"))
        await boss.edit_job(other, JobEdit(priority=4))
        await boss.run_jobs_now(JobFilter(ids=(job_id, other)))
        await boss.run_jobs_now(JobFilter(ids=(other,)))
        await boss.cancel_jobs(JobFilter(queues=("default",), kinds=("tests.noop",)))
        await boss.cancel_jobs(JobFilter(kinds=("tests.none",)))
        life = await boss.job_timeline(job_id)
        begun = await boss.job_timeline(job_id, at=life.spans[0].at)
        before = await boss.job_timeline(job_id, at=life.spans[0].at - timedelta(seconds=1))
        with pytest.raises(InvalidInput):
            await boss.job_timeline(job_id, at=datetime(2026, 1, 1))  # noqa: DTZ001
    assert [(each.verb, each.actor, each.reason) for each in life.deeds] == [
        ("edit_job", "ada", "urgent"),
        ("run_jobs_now", "ada", ""),
        ("cancel_jobs", "ada", ""),
    ]
    assert life.deeds[0].action_id == edit.id
    assert [each.stage for each in life.spans] == ["waiting", "cancelled"]
    assert life.asked is not None
    assert life.asked.stage == "cancelled"
    assert begun.asked is not None
    assert begun.asked.stage == "waiting"
    assert before.asked is None
    async with operator(storage, Access()) as guest:
        assert [each.reason for each in (await guest.job_timeline(job_id)).deeds] == ["", "", ""]
