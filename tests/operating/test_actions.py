"""Actions on many jobs: previewed, applied, recorded, and the undo of actions on one thing."""

from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.actions import ActionState
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, Unique
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.actions import previews, recording
from forge_jobs.operating.actions.previews import Apply
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, enqueue_one, new_job, register

pytestmark = pytest.mark.anyio

QUEUE, OTHER = "default", "other"


def boss(storage: Storage, name: str = "ada") -> Operator:
    return Operator(storage, Actor(name=name, access=ALL))


async def several(storage: Storage, number: int, queue: str = QUEUE, **values: str) -> list[JobId]:
    await storage.config.set_queue(queue, QueueChange(max_workers=5))
    jobs = [new_job(queue=queue, **values) for _ in range(number)]
    return sorted(each.job_id for each in await storage.jobs.enqueue(jobs))


async def test_a_preview_says_what_an_action_would_meet(storage: Storage) -> None:
    ids = await several(storage, 12, schedule="nightly")
    keyed = await enqueue_one(storage, queue=QUEUE, unique=Unique("k"))
    child = await enqueue_one(storage, queue=OTHER, after=(After(ids[0]),))
    lease = await register(storage, queues=(QUEUE,))
    await claim_one(storage, lease, queue=QUEUE)
    async with boss(storage) as ada:
        before = (await ada.list_jobs(limit=100)).jobs
        preview = await ada.preview_action("delete_jobs", JobFilter(queues=(QUEUE,)))
        assert (preview.count, preview.more) == (13, False)
        assert [job.id for job in preview.samples] == sorted([*ids, keyed], reverse=True)[:10]
        assert preview.refused == {Refusal.RUNNING: 1}
        assert preview.children == (child,)
        assert preview.schedules == ("nightly",)
        assert preview.keys == 1
        assert preview.undo == ""
        assert (await ada.list_jobs(limit=100)).jobs == before


async def test_apply_changes_the_jobs_of_the_preview_and_no_later_ones(storage: Storage) -> None:
    ids = await several(storage, 5)
    others = await several(storage, 3, OTHER)
    async with boss(storage) as ada:
        preview = await ada.preview_action("cancel_jobs", JobFilter(), all_jobs=True)
        [late] = await several(storage, 1)
        action = await ada.apply_action(Apply(token=preview.token, reason="stuck since noon"))
        assert (action.state, action.changed, action.refused) == (ActionState.DONE, 8, 0)
        assert (action.actor, action.surface, action.verb) == ("ada", "code", "cancel_jobs")
        assert (action.reason, action.matched) == ("stuck since noon", 8)
        assert (await ada.action_jobs(action.id)).job_ids == tuple(sorted([*ids, *others]))
        assert (await ada.get_job(late)).status == "pending"
        again = await ada.apply_action(Apply(token=preview.token))
        assert again == action
        assert [each.id for each in (await ada.list_actions()).actions] == [action.id]


async def test_an_empty_filter_needs_all(sqlite_storage: Storage) -> None:
    async with boss(sqlite_storage) as ada:
        with pytest.raises(InvalidInput, match="means every job"):
            await ada.preview_action("cancel_jobs", JobFilter())
        with pytest.raises(InvalidInput, match="verb"):
            await ada.preview_action("pause_queue", JobFilter(), all_jobs=True)


async def test_a_match_that_grew_by_a_tenth_is_asked_again(sqlite_storage: Storage) -> None:
    ids = await several(sqlite_storage, 22)
    dead = JobFilter(statuses=("cancelled",))  # type: ignore[arg-type]
    async with boss(sqlite_storage) as ada:
        await ada.cancel_jobs(JobFilter(ids=tuple(ids[:10])))
        preview = await ada.preview_action("requeue_jobs", dead)
        await ada.cancel_jobs(JobFilter(ids=(ids[10],)))
        allowed = await ada.preview_action("requeue_jobs", dead)
        await ada.cancel_jobs(JobFilter(ids=tuple(ids[11:13])))
        with pytest.raises(Conflict, match="13 jobs match, and 11 did"):
            await ada.apply_action(Apply(token=allowed.token))
        with pytest.raises(Conflict):
            await ada.apply_action(Apply(token=preview.token))
        assert (await ada.preview_action("requeue_jobs", dead)).count == 13


async def test_a_token_is_good_for_its_actor_and_ten_minutes(
    sqlite_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await several(sqlite_storage, 1)
    async with boss(sqlite_storage) as ada, boss(sqlite_storage, "bob") as bob:
        token = (await ada.preview_action("cancel_jobs", JobFilter(queues=(QUEUE,)))).token
        with pytest.raises(InvalidInput, match="another actor"):
            await bob.apply_action(Apply(token=token))
        for wrong in ("", "x", token[:-3], token[::-1], 7):
            with pytest.raises(InvalidInput, match="token"):
                await ada.apply_action(Apply(token=wrong))  # type: ignore[arg-type]
        ticket = previews.read_token(token)
        old = structs.replace(ticket, at=ticket.at - previews.VALID_FOR - timedelta(seconds=1))
        with pytest.raises(InvalidInput, match="ten minutes"):
            await ada.apply_action(Apply(token=previews.token_of(old)))
        assert (await ada.apply_action(Apply(token=token))).changed == 1


async def test_another_driver_goes_on_and_an_aborted_action_stays(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "AT_ONCE", 2)
    await several(storage, 6)
    async with boss(storage) as ada, boss(storage, "bob") as bob:
        action = ada._action("cancel_jobs", which=JobFilter(), queues=(QUEUE,))
        await storage.jobs.put_action(action)
        assert (await bob.continue_action(action.id)).changed == 6
        assert (await ada.continue_action(action.id)).changed == 6
        second = ada._action("requeue_jobs", which=JobFilter(), queues=(QUEUE,))
        await storage.jobs.put_action(second)
        assert (await bob.abort_action(second.id)).state is ActionState.ABORTED
        assert (await ada.continue_action(second.id)).changed == 0
        with pytest.raises(NotFound):
            await ada.abort_action(new_job_id())


async def test_every_action_leaves_a_record(storage: Storage) -> None:
    [job_id] = await several(storage, 1)
    async with boss(storage) as ada:
        await ada.pause_queue(QUEUE)
        await ada.set_limit("upstream", RateLimit(5, timedelta(minutes=1)))
        await ada.cancel_jobs(JobFilter(ids=(job_id,)))
        await ada.delete_queue(QUEUE, with_jobs=True)
        kept = (await ada.list_actions()).actions
    assert [each.verb for each in kept] == [
        "delete_queue",
        "delete_jobs",
        "cancel_jobs",
        "set_limit",
        "pause_queue",
    ]
    assert {each.state for each in kept} == {ActionState.DONE}


async def test_what_has_an_inverse_is_undone(storage: Storage) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=5))
    daily = ScheduleEdit(kind="k", expression="@daily", queue=QUEUE, payload={"n": 1})
    async with boss(storage) as ada:

        async def undo_last() -> str:
            last = (await ada.list_actions(limit=1)).actions[0]
            undone = await ada.undo_action(last.id)
            assert undone.undoes == last.id
            return undone.id

        await ada.set_queue(QUEUE, QueueEdit(max_workers=9))
        undo = await undo_last()
        assert (await ada.list_queues()).queues[0].settings.max_workers == 5
        await ada.undo_action(undo)
        assert (await ada.list_queues()).queues[0].settings.max_workers == 9

        await ada.pause_queue(QUEUE)
        await undo_last()
        assert not (await ada.list_queues()).queues[0].paused

        added = await ada.add_schedule("nightly", daily)
        await ada.set_schedule("nightly", ScheduleEdit(priority=7))
        await undo_last()
        assert (await ada.list_schedules()).schedules[0].spec == added.spec
        await ada.delete_schedule("nightly")
        await undo_last()
        assert (await ada.list_schedules()).schedules[0].spec == added.spec
        await ada.pause_schedule("nightly")
        await undo_last()
        assert not (await ada.list_schedules()).schedules[0].paused

        limit = await ada.set_limit("upstream", RateLimit(5, timedelta(minutes=1)))
        await ada.delete_limit("upstream")
        await undo_last()
        assert (await ada.list_limits()).rate_limits[0].limit == limit.limit


async def test_an_undo_refuses_what_somebody_has_changed_since(sqlite_storage: Storage) -> None:
    await sqlite_storage.config.set_queue(QUEUE, QueueChange(max_workers=5))
    async with boss(sqlite_storage) as ada:
        await ada.set_queue(QUEUE, QueueEdit(max_workers=9))
        [mine] = (await ada.list_actions()).actions
        await ada.set_queue(QUEUE, QueueEdit(max_workers=10))
        with pytest.raises(Conflict, match="changed since"):
            await ada.undo_action(mine.id)
        assert (await ada.list_queues()).queues[0].settings.max_workers == 10
        gone = await ada.cancel_jobs(JobFilter(queues=(QUEUE,)))
        assert gone.changed == []
        [many] = (await ada.list_actions(limit=1)).actions
        with pytest.raises(Conflict, match="cancelled no job"):
            await ada.undo_action(many.id)
        await ada.delete_jobs(JobFilter(queues=(QUEUE,)))
        [many] = (await ada.list_actions(limit=1)).actions
        with pytest.raises(Conflict, match="no inverse"):
            await ada.undo_action(many.id)


async def test_records_of_closed_queues_are_not_shown(sqlite_storage: Storage) -> None:
    await several(sqlite_storage, 1)
    await several(sqlite_storage, 1, OTHER)
    access = Access(actions=frozenset({"*"}), queues=frozenset({OTHER}))
    limited = Operator(sqlite_storage, Actor(name="eve", access=access))
    async with boss(sqlite_storage) as ada, limited:
        await ada.cancel_jobs(JobFilter(queues=(QUEUE,)))
        await ada.pause_queue(QUEUE)
        await limited.cancel_jobs(JobFilter())
        [mine] = (await limited.list_actions()).actions
        assert (mine.actor, mine.queues) == ("eve", (OTHER,))
        for action in (await ada.list_actions()).actions[1:]:
            with pytest.raises(NotFound):
                await limited.get_action(action.id)
