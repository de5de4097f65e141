"""Actions of operators: a record, and steps that change each job once."""

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.actions import (
    JOBS_KEPT,
    RECORDS_KEPT,
    Action,
    ActionPart,
    ActionRecord,
    ActionState,
    ActionStep,
    mark_id,
)
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.actions import action_of
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    QUEUE,
    claim_one,
    dead,
    enqueue_one,
    finish,
    get_job,
    new_job,
    only,
)

pytestmark = pytest.mark.anyio

OTHER = "other"
VERBS = ("cancel", "requeue", "restore", "delete", "release_held", "run_now")


@pytest.fixture(autouse=True)
async def queues(storage: Storage) -> None:
    """Both queues are known, as those of an action are."""
    for queue in (QUEUE, OTHER):
        await storage.config.set_queue(queue, QueueChange(max_workers=5))


def an_action(*queues: str, **overrides: object) -> Action:
    values: dict[str, object] = {
        "id": new_job_id(),
        "actor": "ada",
        "surface": "code",
        "verb": "cancel_jobs",
        "which": JobFilter(kinds=("k",)),
        "queues": queues or (QUEUE,),
        "matched": 3,
        "reason": "they are stuck",
    }
    return Action(**(values | overrides))  # type: ignore[arg-type]


def step_of(record: ActionRecord, queue: str = QUEUE) -> ActionStep:
    part = next(part for part in record.parts if part.queue == queue)
    return ActionStep(action_id=record.action.id, queue=queue, cursor=part.cursor)


async def drive(storage: Storage, action: Action, verb: str, *, limit: int = 2) -> ActionRecord:
    """Take steps until the action is done."""
    record = await storage.jobs.get_action(action.id)
    for _ in range(100):
        running = [part for part in record.parts if part.state is ActionState.RUNNING]
        if not running:
            return record
        which = JobFilter(queues=(running[0].queue,))
        step = step_of(record, running[0].queue)
        await getattr(storage.jobs, verb)(which, limit=limit, step=step)
        record = await storage.jobs.get_action(action.id)
    raise AssertionError(f"the action does not end: {record}")


async def several(storage: Storage, number: int, queue: str = QUEUE) -> list[JobId]:
    jobs = [new_job(queue=queue) for _ in range(number)]
    return sorted(each.job_id for each in await storage.jobs.enqueue(jobs))


def total(parts: Iterable[ActionPart]) -> int:
    return sum(part.changed for part in parts)


async def test_a_record_is_stored_once_with_a_part_for_each_queue(storage: Storage) -> None:
    action = an_action(OTHER, QUEUE)
    put = await storage.jobs.put_action(action)
    assert put.action.at == await storage.cron.now()
    assert [part.queue for part in put.parts] == sorted((OTHER, QUEUE))
    assert put.state is ActionState.RUNNING
    again = await storage.jobs.put_action(an_action(id=action.id, reason="another"))
    assert again == put
    assert await storage.jobs.get_action(action.id) == put


async def test_an_action_on_one_thing_is_done_at_once(storage: Storage) -> None:
    action = an_action(which=None, queues=(), target="gh", before='{"a":1}', after='{"a":2}')
    assert (await storage.jobs.put_action(action)).state is ActionState.DONE


async def test_actions_are_listed_the_newest_first(storage: Storage) -> None:
    ids = [(await storage.jobs.put_action(an_action())).action.id for _ in range(5)]
    newest = sorted(ids, reverse=True)
    first = await storage.jobs.actions(limit=3)
    assert [each.action.id for each in first] == newest[:3]
    rest = await storage.jobs.actions(below=newest[2], limit=3)
    assert [each.action.id for each in rest] == newest[3:]
    assert all(each.parts for each in (*first, *rest))


async def test_a_mark_of_a_key_is_stored_once_and_is_in_no_list(storage: Storage) -> None:
    mark = an_action(id=mark_id("ada", "deploy 7"), which=None, queues=(), target="first")
    assert mark.id == mark_id("ada", "deploy 7") != mark_id("bob", "deploy 7")
    put = await storage.jobs.put_action(mark)
    again = await storage.jobs.put_action(structs.replace(mark, target="second"))
    assert again == put
    assert (await storage.jobs.get_action(mark.id)).action.target == "first"
    listed = await storage.jobs.put_action(an_action())
    assert await storage.jobs.actions() == [listed]
    assert await storage.jobs.actions(below=listed.action.id) == []


async def test_an_action_that_is_not_there(storage: Storage) -> None:
    gone = new_job_id()
    for call in (storage.jobs.get_action, storage.jobs.abort_action):
        with pytest.raises(NotFound):
            await call(gone)
    assert await storage.jobs.action_jobs(gone) == []
    with pytest.raises(Conflict):
        await storage.jobs.cancel(
            JobFilter(queues=(QUEUE,)), step=ActionStep(action_id=gone, queue=QUEUE)
        )


@pytest.mark.parametrize("verb", VERBS)
async def test_a_step_advances_the_action_by_what_became_of_the_jobs(
    storage: Storage, verb: str
) -> None:
    ids = await several(storage, 5)
    await several(storage, 2, OTHER)
    action = an_action()
    await storage.jobs.put_action(action)
    record = await drive(storage, action, verb)
    [part] = record.parts
    refused = sum(part.refused.values())
    assert part.changed + refused == 5
    assert (part.changed == 5) == (verb in {"cancel", "delete", "run_now"})
    met = await storage.jobs.action_jobs(action.id)
    assert met == (ids if part.changed else [])
    assert await storage.jobs.action_jobs(action.id, beyond=ids[1], limit=2) == met[2:4]
    assert (await storage.jobs.counts([OTHER]))[OTHER].by_status["pending"] == 2


async def test_a_step_that_was_taken_changes_nothing_more(storage: Storage) -> None:
    await several(storage, 4)
    action = an_action()
    first = step_of(await storage.jobs.put_action(action))
    which = JobFilter(queues=(QUEUE,))
    outcome = await storage.jobs.cancel(which, limit=2, step=first)
    assert len(outcome.changed) == 2
    for again in range(2):
        with pytest.raises(Conflict):
            await storage.jobs.cancel(which, limit=2 + again, step=first)
    record = await storage.jobs.get_action(action.id)
    assert total(record.parts) == 2
    assert record.parts[0].cursor == outcome.cursor
    assert total((await drive(storage, action, "cancel")).parts) == 4


async def test_queues_are_steps_of_their_own(storage: Storage) -> None:
    mine, others = await several(storage, 3), await several(storage, 3, OTHER)
    action = an_action(QUEUE, OTHER)
    await storage.jobs.put_action(action)
    record = await drive(storage, action, "cancel")
    assert [part.changed for part in record.parts] == [3, 3]
    assert await storage.jobs.action_jobs(action.id) == sorted([*mine, *others])


async def test_an_aborted_action_changes_nothing_more(storage: Storage) -> None:
    await several(storage, 4)
    await several(storage, 1, OTHER)
    action = an_action(QUEUE, OTHER)
    record = await storage.jobs.put_action(action)
    which = JobFilter(queues=(QUEUE,))
    await storage.jobs.cancel(which, limit=2, step=step_of(record))
    await storage.jobs.cancel(JobFilter(queues=(OTHER,)), step=step_of(record, OTHER))
    aborted = await storage.jobs.abort_action(action.id)
    assert aborted.state is ActionState.ABORTED
    assert {part.queue: part.state for part in aborted.parts} == {
        QUEUE: ActionState.ABORTED,
        OTHER: ActionState.DONE,
    }
    with pytest.raises(Conflict):
        await storage.jobs.cancel(which, limit=2, step=step_of(aborted))
    assert await storage.jobs.abort_action(action.id) == aborted
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["cancelled"] == 2


async def test_a_running_job_is_asked_and_counted_as_such(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    running = await claim_one(storage, lease)
    waiting = await enqueue_one(storage)
    action = an_action()
    await storage.jobs.put_action(action)
    [part] = (await drive(storage, action, "cancel")).parts
    assert (part.changed, part.requested) == (1, 1)
    assert await storage.jobs.action_jobs(action.id) == sorted([running.claim.job_id, waiting])


async def test_refusals_are_counted_by_reason(storage: Storage, lease: PodLease) -> None:
    await several(storage, 3)
    await finish(storage, await claim_one(storage, lease), dead())
    action = an_action()
    await storage.jobs.put_action(action)
    [part] = (await drive(storage, action, "requeue")).parts
    assert (part.changed, dict(part.refused)) == (1, {Refusal.WAITING: 2})


async def test_parents_and_children_are_requeued_by_steps(storage: Storage) -> None:
    parent = await enqueue_one(storage)
    children = [await enqueue_one(storage, after=(After(parent),)) for _ in range(3)]
    await storage.jobs.cancel(only(parent, *children))
    action = an_action()
    await storage.jobs.put_action(action)
    [part] = (await drive(storage, action, "requeue", limit=1)).parts
    assert part.changed >= 1
    assert part.changed + sum(part.refused.values()) == 4
    assert (await get_job(storage, parent)).status is JobStatus.PENDING


async def test_named_jobs_elsewhere_are_no_part_of_a_step(storage: Storage) -> None:
    [mine], [other] = await several(storage, 1), await several(storage, 1, OTHER)
    action = an_action()
    record = await storage.jobs.put_action(action)
    which = JobFilter(ids=(mine, other, new_job_id()), queues=(QUEUE,))
    outcome = await storage.jobs.cancel(which, step=step_of(record))
    assert outcome.changed == (mine,)
    assert dict((await storage.jobs.get_action(action.id)).parts[0].refused) == {}
    assert (await get_job(storage, other)).status is JobStatus.PENDING


async def test_a_step_without_jobs_ends_its_part(storage: Storage) -> None:
    await storage.jobs.enqueue([new_job()])
    action = an_action()
    record = await storage.jobs.put_action(action)
    which = JobFilter(queues=(QUEUE,), kinds=("no.such.kind",))
    await storage.jobs.requeue(which, step=step_of(record))
    assert (await storage.jobs.get_action(action.id)).state is ActionState.DONE


async def test_a_step_names_its_queue_alone(storage: Storage) -> None:
    record = await storage.jobs.put_action(an_action())
    for which in (JobFilter(), JobFilter(queues=(OTHER,)), JobFilter(queues=(QUEUE, OTHER))):
        with pytest.raises(InvalidInput, match="which"):
            await storage.jobs.cancel(which, step=step_of(record))
    which = JobFilter(queues=(QUEUE,))
    with pytest.raises(InvalidInput, match="cursor"):
        await storage.jobs.cancel(which, cursor=new_job_id(), step=step_of(record))


@pytest.mark.parametrize(
    ("field", "overrides"), [("action_id", {"id": "7"}), ("reason", {"reason": "x" * 1_001})]
)
async def test_what_is_no_action_is_refused(
    storage: Storage, field: str, overrides: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput, match=field):
        await storage.jobs.put_action(an_action(**overrides))


async def test_changed_jobs_are_known_for_a_week_and_records_for_400_days(
    storage: Storage, clock: ManualClock
) -> None:
    [job_id] = await several(storage, 1)
    action = an_action()
    await storage.jobs.put_action(action)
    await drive(storage, action, "cancel")
    clock.advance(JOBS_KEPT - timedelta(seconds=1))
    assert await storage.jobs.action_jobs(action.id) == [job_id]
    clock.advance(timedelta(seconds=1))
    assert await storage.jobs.action_jobs(action.id) == []
    clock.advance(RECORDS_KEPT)
    await storage.jobs.put_action(an_action())
    with pytest.raises(NotFound):
        await storage.jobs.get_action(action.id)


async def test_an_action_on_one_thing_is_settled_once(storage: Storage) -> None:
    begun = an_action(which=None, verb="pause_queue", target=QUEUE, settled=ActionState.RUNNING)
    begun = structs.replace(begun, queues=(), before="false")
    assert (await storage.jobs.put_action(begun)).state is ActionState.RUNNING
    done = structs.replace(begun, after="true", settled=ActionState.DONE)
    settled = await storage.jobs.settle_action(done)
    assert (settled.state, settled.action.after) == (ActionState.DONE, "true")
    late = structs.replace(begun, after="false", settled=ActionState.ABORTED)
    assert await storage.jobs.settle_action(late) == settled
    assert await storage.jobs.get_action(begun.id) == settled
    assert (await storage.jobs.actions(limit=1)) == [settled]
    with pytest.raises(NotFound):
        await storage.jobs.settle_action(structs.replace(done, id=new_job_id()))


async def test_a_record_of_an_earlier_release_is_done(storage: Storage) -> None:
    old = msgspec.json.decode(msgspec.json.encode(an_action(which=None)))
    del old["settled"]
    assert action_of("", msgspec.json.encode(old)).settled is ActionState.DONE
