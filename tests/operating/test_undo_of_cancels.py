"""The undo of a cancel on many: the jobs are restored, each once, and the record says what is
refused."""

from datetime import datetime

import pytest

from forge_jobs.errors import Conflict, Forbidden
from forge_jobs.model.actions import ActionState
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus, Unique
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.actions import recording
from forge_jobs.operating.actions.previews import Apply
from forge_jobs.operating.operations import BY_NAME
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, done, enqueue_one, finish, new_job, register

pytestmark = pytest.mark.anyio

QUEUE, OTHER = "default", "other"


def boss(storage: Storage, access: Access = ALL) -> Operator:
    return Operator(storage, Actor(name="ada", access=access))


async def several(storage: Storage, number: int, queue: str = QUEUE) -> list[JobId]:
    await storage.config.set_queue(queue, QueueChange(max_workers=5))
    jobs = [new_job(queue=queue) for _ in range(number)]
    return sorted(each.job_id for each in await storage.jobs.enqueue(jobs))


async def statuses(storage: Storage, ids: list[JobId]) -> list[JobStatus]:
    found = await storage.jobs.get(ids)
    return [found[each].status for each in ids]


async def due_times(storage: Storage, ids: list[JobId]) -> list[datetime]:
    found = await storage.jobs.get(ids)
    return [found[each].due_at for each in ids]


async def test_the_undo_of_a_cancel_restores_the_jobs_of_all_queues(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "AT_ONCE", 2)
    ids = [*await several(storage, 5), *await several(storage, 4, OTHER)]
    before = await due_times(storage, ids)
    async with boss(storage) as ada:
        [earlier] = await several(storage, 1)
        await ada.cancel_jobs(JobFilter(ids=(earlier,)))
        preview = await ada.preview_action(
            "cancel_jobs", JobFilter(statuses=(JobStatus.PENDING,)), all_jobs=True
        )
        assert preview.undo == BY_NAME["cancel_jobs"].inverse == "restore_jobs"
        cancelled = await ada.apply_action(Apply(token=preview.token))
        assert cancelled.changed == 9
        undone = await ada.undo_action(cancelled.id)
        assert (undone.verb, undone.undoes) == ("restore_jobs", cancelled.id)
        assert (undone.state, undone.changed, undone.refused) == (ActionState.DONE, 9, 0)
        assert await ada.undo_action(cancelled.id) == undone
        assert (await ada.action_jobs(undone.id)).job_ids == tuple(sorted(ids))
        timeline = await ada.job_timeline(ids[0])
        assert [deed.verb for deed in timeline.deeds] == ["cancel_jobs", "restore_jobs"]
    assert await statuses(storage, ids) == [JobStatus.PENDING] * 9
    assert await due_times(storage, ids) == before
    assert await statuses(storage, [earlier]) == [JobStatus.CANCELLED]


async def test_what_cannot_be_restored_stands_in_the_record(storage: Storage) -> None:
    lease = await register(storage, queues=(QUEUE,))
    await several(storage, 0)
    running = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    keyed = await enqueue_one(storage, unique=Unique("k"))
    fine = await enqueue_one(storage)
    gone = await enqueue_one(storage)
    async with boss(storage) as ada:
        await ada.cancel_jobs(JobFilter(queues=(QUEUE,)))
        [cancelled] = (await ada.list_actions(limit=1)).actions
        assert (cancelled.changed, cancelled.requested) == (3, 1)
        await enqueue_one(storage, unique=Unique("k"))
        await ada.delete_jobs(JobFilter(ids=(gone,)))
        assert await finish(storage, claimed, done())
        undone = await ada.undo_action(cancelled.id)
    [part] = undone.parts
    assert (part.changed, dict(part.refused)) == (
        1,
        {Refusal.FINISHED: 1, Refusal.KEY_TAKEN: 1},
    )
    assert await statuses(storage, [running, keyed, fine]) == [
        JobStatus.DONE,
        JobStatus.CANCELLED,
        JobStatus.PENDING,
    ]


async def test_another_driver_goes_on_with_an_undo(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "AT_ONCE", 3)
    ids = await several(storage, 8)
    async with boss(storage) as ada:
        await ada.cancel_jobs(JobFilter(queues=(QUEUE,)))
        [cancelled] = (await ada.list_actions(limit=1)).actions
        # As a driver leaves it that has died before the first step.
        undo = ada._action(
            "restore_jobs", which=JobFilter(ids=()), queues=(QUEUE,), undoes=cancelled.id
        )
        await storage.jobs.put_action(undo)
        assert (await recording.drive(storage, undo)).parts[0].changed == 8
        assert (await ada.undo_action(cancelled.id)).id == undo.id
    assert await statuses(storage, ids) == [JobStatus.PENDING] * 8


async def test_an_undo_of_a_cancel_is_refused_where_there_is_nothing_to_take_back(
    sqlite_storage: Storage,
) -> None:
    storage = sqlite_storage
    await several(storage, 2)
    async with boss(storage) as ada:
        running = ada._action("cancel_jobs", which=JobFilter(), queues=(QUEUE,))
        await storage.jobs.put_action(running)
        with pytest.raises(Conflict, match="still runs"):
            await ada.undo_action(running.id)
        await ada.abort_action(running.id)
        with pytest.raises(Conflict, match="cancelled no job"):
            await ada.undo_action(running.id)
        await ada.cancel_jobs(JobFilter(queues=(QUEUE,)))
        [cancelled] = (await ada.list_actions(limit=1)).actions
        only_cancels = Access(actions=frozenset({"cancel_jobs"}))
        async with boss(storage, only_cancels) as eve:
            with pytest.raises(Forbidden):
                await eve.undo_action(cancelled.id)
        assert (await ada.undo_action(cancelled.id)).changed == 2
