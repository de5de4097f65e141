"""Workflows as people see them: lists, steps, resume and cancel with a record, closed queues."""

from typing import Any

import pytest

from forge_jobs import Encryption, HandlerRegistry, Workflow
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.jobs import workflows
from forge_jobs.operating.operator import Operator
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, only, register, run_one, spoil

pytestmark = pytest.mark.anyio

NOOP: EnqueueRequest[Any] = EnqueueRequest("tests.noop", max_attempts=1)
MINE, CLOSED = "default", "closed"


def operator(storage: Storage, access: Access = ALL) -> Operator:
    return Operator(storage, Actor(name="ada", access=access))


async def stored(storage: Storage, **options: Any) -> tuple[JobId, dict[str, JobId]]:
    """Store three steps, the second in a closed queue, and two beside."""
    workflow = Workflow("nightly", queue=MINE, **options)
    workflow.step("a", NOOP)
    workflow.step("b", NOOP.options(queue=CLOSED), after=["a"])
    workflow.step("c", NOOP, after={"b": "hold", "a": "continue"})
    async with JobClient(storage) as client:
        found = await client.enqueue_workflow(workflow)
    return found.id, {name: each.job_id for name, each in found.steps.items()}


async def hand_over(storage: Storage) -> None:
    while await hand_over_once(storage.jobs):
        pass


async def test_a_list_has_the_counts_and_one_has_the_steps(storage: Storage) -> None:
    lease = await register(storage)
    whole, steps = await stored(storage, tags=["eu"])
    newest, _ = await stored(storage)
    await run_one(storage, lease, dead())
    await hand_over(storage)
    async with operator(storage) as ada:
        page = await ada.list_workflows()
        assert [each.id for each in page.workflows] == [newest, whole]
        line = page.workflows[1]
        assert (line.waiting, line.held, line.done, line.status) == (2, 1, 0, JobStatus.BLOCKED)
        assert set(line.tags) == {"nightly", "eu"}
        first = await ada.list_workflows(limit=1)
        second = await ada.list_workflows(limit=1, cursor=first.cursor)
        assert (first.workflows[0].id, second.workflows) == (newest, (line,))

        found = await ada.get_workflow(whole)
        assert (found.name, found.total, found.failed, found.waiting) == ("nightly", 3, 1, 2)
        assert (found.held_by, [each.name for each in found.steps]) == (("a",), ["a", "b", "c"])
        assert found.steps[1].held_by == ("a",)
        for other in (steps["a"], new_job_id()):
            for call in (ada.get_workflow, ada.resume_workflow, ada.cancel_workflow):
                with pytest.raises(NotFound):
                    await call(other)


async def test_a_resume_and_a_cancel_are_recorded(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "_AT_ONCE", 2)
    lease = await register(storage)
    whole, steps = await stored(storage)
    await run_one(storage, lease, dead())
    await hand_over(storage)
    async with operator(storage) as ada:
        assert (await ada.resume_workflow(whole, reason="mended")).changed == [steps["a"]]
        await run_one(storage, lease, done())
        await hand_over(storage)
        changed = await ada.cancel_workflow(whole)
        assert sorted(changed.changed) == sorted([steps["b"], steps["c"], whole])
        assert list(changed.refused) == [steps["a"]]
        actions = (await ada.list_actions()).actions
        assert [(each.verb, each.reason) for each in actions] == [
            ("cancel_jobs", ""),
            ("cancel_jobs", ""),
            ("requeue_jobs", "mended"),
        ]
        await hand_over(storage)
        assert len((await ada.resume_workflow(whole)).changed) == 3
        await ada.release_held_jobs(only(whole))
        assert (await ada.get_workflow(whole)).waiting == 2


async def test_a_workflow_that_is_done_is_not_resumed(storage: Storage) -> None:
    lease = await register(storage, kinds=("tests.noop", "forge.workflow"))
    workflow = Workflow("w")
    workflow.step("a", NOOP)
    async with JobClient(storage) as client:
        whole = (await client.enqueue_workflow(workflow)).id
    await run_one(storage, lease, done())
    await hand_over(storage)
    async with operator(storage) as ada:
        await ada.release_held_jobs(only(whole))
        await _end(storage, lease, whole)
        with pytest.raises(Conflict, match="nothing to resume"):
            await ada.resume_workflow(whole)


async def _end(storage: Storage, lease: Any, job_id: JobId) -> None:
    from tests.support.factories import claim, finish

    [claimed] = await claim(storage, lease, kinds=("forge.workflow",))
    assert claimed.claim.job_id == job_id
    await finish(storage, claimed, done())


async def test_steps_in_closed_queues_do_not_exist(storage: Storage) -> None:
    whole, steps = await stored(storage)
    async with operator(storage, Access(queues=frozenset({MINE}))) as eve:
        found = await eve.get_workflow(whole)
        assert [(each.name, dict(each.after)) for each in found.steps] == [
            ("a", {}),
            ("c", {"a": "continue"}),
        ]
        assert found.total == 2
    async with operator(storage, Access(queues=frozenset({CLOSED}))) as mallory:
        with pytest.raises(NotFound):
            await mallory.get_workflow(whole)
        assert (await mallory.list_workflows()).workflows == ()
    mine = Access(queues=frozenset({MINE}), actions=frozenset({"*"}))
    async with operator(storage, mine) as bob:
        changed = await bob.cancel_workflow(whole)
        assert sorted(changed.changed) == sorted([steps["a"], steps["c"], whole])


async def test_without_the_key_the_steps_have_the_names_of_their_jobs(storage: Storage) -> None:
    handlers = HandlerRegistry(encryption=Encryption([Encryption.new_key()]))
    workflow = Workflow("w")
    workflow.step("a", NOOP)
    async with JobClient(storage, handlers) as client:
        found = await client.enqueue_workflow(workflow)
    async with operator(storage) as ada:
        shown = await ada.get_workflow(found.id)
    job_id = found.steps["a"].job_id
    assert (shown.name, [(each.name, each.job_id) for each in shown.steps]) == (
        "",
        [(job_id, job_id)],
    )
    assert "which is not at hand; give it in" in shown.unreadable


async def test_a_graph_that_an_edit_has_spoilt_says_so(storage: Storage) -> None:
    whole, steps = await stored(storage)
    async with operator(storage) as ada:
        assert (await ada.get_workflow(whole)).unreadable == ""
        for payload in ('{"name": 5, "steps": []}', '{"steps": {"a": 1}}'):
            await spoil(storage, whole, payload)
            shown = await ada.get_workflow(whole)
            assert {each.name for each in shown.steps} == set(steps.values())
            assert "an edit has spoilt" in shown.unreadable
