"""A step of an action that meets a row which cannot be changed goes on by halves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from forge_jobs.model.actions import Action, ActionState, ActionStep
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import new_job_id
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.store import SqlJobStore
from tests.support.backends import forget, url_of
from tests.support.factories import QUEUE, new_job

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with await open_storage(await url_of("postgres", tmp_path)) as opened:
        yield opened
    await forget("postgres", tmp_path)


async def run(jobs: SqlJobStore, statement: str) -> None:
    def script(tx: Tx) -> None:
        tx.execute(text(statement), {})

    await jobs._database.write(script)


async def test_jobs_that_a_foreign_key_holds_are_refused_and_counted(storage: Storage) -> None:
    stored = await storage.jobs.enqueue([new_job() for _ in range(9)])
    ids = sorted(each.job_id for each in stored)
    kept = {ids[2], ids[7]}
    assert isinstance(storage.jobs, SqlJobStore)
    statements = [
        "CREATE TABLE invoices (job_id TEXT NOT NULL REFERENCES forge_jobs (id))",
        *(f"INSERT INTO invoices VALUES ('{job_id}')" for job_id in kept),
    ]
    for statement in statements:
        await run(storage.jobs, statement)
    action = Action(id=new_job_id(), actor="a", surface="code", verb="v", queues=(QUEUE,))
    await storage.jobs.put_action(action)
    step = ActionStep(action_id=action.id, queue=QUEUE)
    outcome = await storage.jobs.delete(JobFilter(queues=(QUEUE,)), step=step)
    assert set(outcome.refused) == kept
    record = await storage.jobs.get_action(action.id)
    assert record.state is ActionState.DONE
    assert record.parts[0].changed == 7
    assert dict(record.parts[0].refused) == {Refusal.REFERENCED: 2}
    assert await storage.jobs.action_jobs(action.id) == [each for each in ids if each not in kept]
    await run(storage.jobs, "DROP TABLE invoices")
