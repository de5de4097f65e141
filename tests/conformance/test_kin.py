"""kin: the parents and children of jobs, with their states."""

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.edges import EdgeState, Kin, Relative
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    dead,
    done,
    enqueue_one,
    new_job,
    only,
    run_one,
)

pytestmark = pytest.mark.anyio

OTHER = "other"


async def kin_of(storage: Storage, job_id: JobId, limit: int = 100) -> Kin:
    return (await storage.jobs.kin([job_id], limit=limit))[job_id]


async def hand_over(storage: Storage) -> None:
    while news := await storage.jobs.handovers(100):
        await storage.jobs.deliver([delivery(each) for each in news])


async def test_parents_and_children_are_shown_with_their_states(
    storage: Storage, lease: PodLease
) -> None:
    first = await enqueue_one(storage)
    middle = await enqueue_one(
        storage, queue=OTHER, kind="k", after=(After(first, "hold"),), delay=DAY
    )
    last = await enqueue_one(storage, after=(After(middle, "continue"), After(first)))
    alone, missing = await enqueue_one(storage, delay=DAY), new_job_id()
    found = await storage.jobs.kin([first, middle, last, alone, missing, middle])
    assert set(found) == {first, middle, last, alone}
    assert found[alone] == Kin()
    kind = "tests.noop"
    blocked, waits = JobStatus.BLOCKED, EdgeState.OPEN
    assert found[middle] == Kin(
        parents=(
            Relative(
                id=first,
                queue=QUEUE,
                kind=kind,
                status=JobStatus.PENDING,
                on_failure="hold",
                edge=waits,
            ),
        ),
        children=(
            Relative(
                id=last,
                queue=QUEUE,
                kind=kind,
                status=blocked,
                on_failure="continue",
                edge=waits,
            ),
        ),
    )
    assert [each.id for each in found[first].children] == [middle, last]
    assert [(each.id, each.on_failure) for each in found[last].parents] == [
        (first, "cancel"),
        (middle, "continue"),
    ]
    assert await run_one(storage, lease, done()) == first
    await hand_over(storage)
    children = {each.id: each for each in (await kin_of(storage, first)).children}
    assert (children[middle].status, children[middle].edge) == (
        JobStatus.PENDING,
        EdgeState.SETTLED,
    )
    assert (children[last].status, children[last].edge) == (blocked, EdgeState.SETTLED)


@pytest.mark.parametrize("queue", [QUEUE, OTHER])
async def test_what_was_removed_is_a_parent_without_a_status_and_no_child(
    storage: Storage, lease: PodLease, queue: str
) -> None:
    parent = await enqueue_one(storage)
    child, held = [
        await enqueue_one(storage, queue=queue, after=(After(parent, policy),))
        for policy in ("cancel", "hold")
    ]
    assert await run_one(storage, lease, dead()) == parent
    await hand_over(storage)
    found = (await kin_of(storage, parent)).children
    assert [(each.id, each.status, each.edge) for each in found] == [
        (child, JobStatus.CANCELLED, EdgeState.HELD),
        (held, JobStatus.BLOCKED, EdgeState.HELD),
    ]
    await storage.jobs.delete(only(child))
    assert [each.id for each in (await kin_of(storage, parent)).children] == [held]
    await storage.jobs.delete(only(parent))
    assert await storage.jobs.kin([parent]) == {}
    [gone] = (await kin_of(storage, held)).parents
    assert (gone.id, gone.status, gone.queue, gone.kind) == (parent, None, "", "")
    assert gone.on_failure == "hold"


async def test_children_of_a_job_that_has_ended_are_there_too(
    storage: Storage, lease: PodLease
) -> None:
    parent = await enqueue_one(storage)
    assert await run_one(storage, lease, dead()) == parent
    late = await enqueue_one(storage, after=(After(parent, "continue"),))
    await hand_over(storage)
    [child] = (await kin_of(storage, parent)).children
    assert (child.id, child.status, child.edge) == (late, JobStatus.PENDING, EdgeState.SETTLED)


async def test_more_than_was_asked_for_is_said(storage: Storage) -> None:
    parents = [new_job() for _ in range(5)]
    child = new_job(after=tuple(After(each.id) for each in parents))
    children = [new_job(queue=f"q{n % 3}", after=(After(child.id),)) for n in range(7)]
    await storage.jobs.enqueue([*parents, child, *children])
    before, behind = (sorted(each.id for each in jobs) for jobs in (parents, children))
    some = await kin_of(storage, child.id, limit=4)
    assert ([each.id for each in some.parents], some.more_parents) == (before[:4], True)
    assert ([each.id for each in some.children], some.more_children) == (behind[:4], True)
    for limit, more in ((5, True), (6, True), (7, False), (100, False)):
        found = await kin_of(storage, child.id, limit=limit)
        assert ([each.id for each in found.parents], found.more_parents) == (before, False)
        assert [each.id for each in found.children] == behind[:limit]
        assert found.more_children is more
    await storage.jobs.delete(only(*map(JobId, behind[:4])))
    left = await kin_of(storage, child.id, limit=2)
    assert ([each.id for each in left.children], left.more_children) == (behind[4:6], True)
    left = await kin_of(storage, child.id, limit=3)
    assert ([each.id for each in left.children], left.more_children) == (behind[4:], False)


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, None, 1.5])
async def test_a_limit_out_of_bounds_is_refused_by_name(storage: Storage, limit: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        await storage.jobs.kin([new_job_id()], limit=limit)  # type: ignore[arg-type]
    assert refused.value.field == "limit"
    with pytest.raises(InvalidInput, match="1 to 1000"):
        await storage.jobs.kin([new_job_id(), new_job_id()], limit=1_001)
    with pytest.raises(InvalidInput) as refused:
        await storage.jobs.kin([new_job_id() for _ in range(101)])
    assert refused.value.field == "ids"


async def test_pages_of_removed_children_are_read_for_all_jobs_at_once(storage: Storage) -> None:
    parents = [new_job(delay=DAY) for _ in range(3)]
    children = [
        [new_job(after=(After(each.id),)) for _ in range(size)]
        for each, size in zip(parents, (9, 1, 5), strict=True)
    ]
    await storage.jobs.enqueue([*parents, *(each for some in children for each in some)])
    removed = [*children[0][:6], *children[2][:5]]
    await storage.jobs.delete(
        only(*(JobId(each.id) for each in sorted(removed, key=lambda job: job.id)))
    )
    found = await storage.jobs.kin([each.id for each in parents], limit=2)
    left = [sorted(each.id for each in some if each not in removed) for some in children]
    assert [[each.id for each in found[parent.id].children] for parent in parents] == [
        each[:2] for each in left
    ]
    assert [found[each.id].more_children for each in parents] == [True, False, False]
