"""Actions that stand still are ended by the next look, and those that go on are left alone."""

from typing import Any

import pytest
from msgspec import Raw

from forge_jobs.errors import Conflict, Unavailable
from forge_jobs.model.actions import Action, ActionRecord, ActionState, ActionStep
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.queues import QueueSettings, QueueState
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.actions.continuing import Continuing
from forge_jobs.operating.actions.editing import JobEdit
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.operating.test_actions import QUEUE, boss, several
from tests.support.factories import get_job, new_job

pytestmark = pytest.mark.anyio


async def begun(storage: Storage) -> Action:
    """An action on many without a driver."""
    action = Action(
        id=new_job_id(),
        actor="ada",
        surface="code",
        verb="cancel_jobs",
        which=JobFilter(),
        queues=(QUEUE,),
    )
    await storage.jobs.put_action(action)
    return action


async def test_an_action_that_moves_is_left_to_its_driver(storage: Storage) -> None:
    await several(storage, 6)
    action = await begun(storage)
    looking = Continuing(storage)
    cursor: str | None = ""
    for _ in range(2):
        assert await looking.go_on_once() == 0
        step = ActionStep(action_id=action.id, queue=QUEUE, cursor=cursor or "")
        outcome = await storage.jobs.cancel(JobFilter(queues=(QUEUE,)), limit=2, step=step)
        cursor = outcome.cursor
    assert await looking.go_on_once() == 0
    assert await looking.go_on_once() == 1
    record = await storage.jobs.get_action(action.id)
    assert (record.state, record.parts[0].changed) == (ActionState.DONE, 6)
    assert await looking.go_on_once() == 0


async def test_two_that_look_change_each_job_once(storage: Storage) -> None:
    ids = await several(storage, 9)
    action = await begun(storage)
    lookers = (Continuing(storage), Continuing(storage))
    for each in (*lookers, *lookers):
        await each.go_on_once()
    record = await storage.jobs.get_action(action.id)
    assert (record.state, record.parts[0].changed) == (ActionState.DONE, 9)
    assert await storage.jobs.action_jobs(action.id) == ids


async def test_an_aborted_action_is_left_alone(sqlite_storage: Storage) -> None:
    await several(sqlite_storage, 3)
    action = await begun(sqlite_storage)
    await sqlite_storage.jobs.abort_action(action.id)
    looking = Continuing(sqlite_storage)
    assert [await looking.go_on_once() for _ in range(3)] == [0, 0, 0]


async def test_a_refused_change_has_a_record_that_says_so(storage: Storage) -> None:
    await several(storage, 1)
    async with boss(storage) as ada:
        with pytest.raises(Conflict):
            await ada.delete_queue(QUEUE)
        [record] = (await ada.list_actions()).actions
    assert (record.verb, record.state) == ("delete_queue", ActionState.ABORTED)


async def test_a_change_without_an_answer_is_settled_by_what_is_there(
    sqlite_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = sqlite_storage
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    really = storage.config.set_paused

    async def without_answer(name: str, paused: bool) -> QueueState:
        await really(name, paused)
        raise Unavailable("the answer was lost")

    monkeypatch.setattr(storage.config, "set_paused", without_answer)
    async with boss(storage) as ada:
        with pytest.raises(Unavailable):
            await ada.pause_queue(QUEUE)
        [record] = (await ada.list_actions()).actions
        assert (record.state, record.before, record.after) == (ActionState.RUNNING, "false", "")
        looking = Continuing(storage)
        assert [await looking.go_on_once() for _ in range(2)] == [0, 1]
        [record] = (await ada.list_actions()).actions
        assert (record.state, record.after) == (ActionState.DONE, "true")
        monkeypatch.setattr(storage.config, "set_paused", really)
        undone = await ada.undo_action(record.id)
        assert (undone.state, undone.undoes) == (ActionState.DONE, record.id)


@pytest.mark.parametrize("is_made", [True, False])
async def test_an_edit_without_an_answer_is_settled_by_what_the_job_has(
    sqlite_storage: Storage, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    storage = sqlite_storage
    [job_id] = await several(storage, 1)
    really = storage.jobs.edit

    async def without_answer(*given: Any, **named: Any) -> None:
        if is_made:
            await really(*given, **named)
        raise Unavailable("the answer was lost")

    monkeypatch.setattr(storage.jobs, "edit", without_answer)
    async with boss(storage) as ada:
        with pytest.raises(Unavailable):
            await ada.edit_job(job_id, JobEdit(priority=7))
        [record] = (await ada.list_actions()).actions
        assert (record.verb, record.state) == ("edit_job", ActionState.RUNNING)
        looking = Continuing(storage)
        assert [await looking.go_on_once() for _ in range(2)] == [0, 1]
        [record] = (await ada.list_actions()).actions
        monkeypatch.setattr(storage.jobs, "edit", really)
        if is_made:
            assert (record.state, record.after) == (ActionState.DONE, '{"priority":7}')
            await ada.undo_action(record.id)
        else:
            assert (record.state, record.after) == (ActionState.ABORTED, record.before)
            assert (await ada.job_timeline(job_id)).deeds == ()
    assert (await get_job(storage, job_id)).priority == 0


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize("pin", ["2222", "1111"], ids=["hidden", "beside"])
async def test_an_edit_of_hidden_fields_is_settled_by_what_the_job_has(
    sqlite_storage: Storage, monkeypatch: pytest.MonkeyPatch, is_made: bool, pin: str
) -> None:
    storage = sqlite_storage
    job = new_job(payload='{"pin":"1111","n":1}')
    await storage.jobs.enqueue([job])
    really = storage.jobs.edit

    async def without_answer(*given: Any, **named: Any) -> None:
        if is_made:
            await really(*given, **named)
        raise Unavailable("the answer was lost")

    monkeypatch.setattr(storage.jobs, "edit", without_answer)
    actor = Actor(name="ada", access=ALL)
    n = 1 if pin == "2222" else 2
    wanted = f'{{"pin":"{pin}","n":{n}}}'
    async with Operator(storage, actor, redact=("pin",)) as ada:
        with pytest.raises(Unavailable):
            await ada.edit_job(job.id, JobEdit(payload=Raw(wanted.encode())))
        # The program that goes on knows no hidden names.
        looking = Continuing(storage)
        assert [await looking.go_on_once() for _ in range(2)] == [0, 1]
        [record] = (await ada.list_actions()).actions
    assert record.state is (ActionState.DONE if is_made else ActionState.ABORTED)
    has = (await get_job(storage, job.id)).payload
    assert has == (wanted if is_made else '{"pin":"1111","n":1}')
    for text in (record.before, record.after):
        assert "seal" not in text
        assert "1111" not in text
        assert "2222" not in text


async def test_an_edit_that_came_too_late_has_a_record_that_says_so(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = await several(storage, 1)
    put = storage.jobs.put_action

    async def put_late(action: Action) -> ActionRecord:
        record = await put(action)
        await storage.jobs.cancel(JobFilter(ids=(job_id,)))
        return record

    monkeypatch.setattr(storage.jobs, "put_action", put_late)
    async with boss(storage) as ada:
        with pytest.raises(Conflict, match="is cancelled"):
            await ada.edit_job(job_id, JobEdit(priority=7))
        [record] = (await ada.list_actions()).actions
    assert (record.verb, record.state) == ("edit_job", ActionState.ABORTED)
