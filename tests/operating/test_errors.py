"""Groups of failures through the operator: the newest whole, what became of the jobs, rights."""

from datetime import UTC, timedelta

import pytest
from msgspec import structs

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.failures import OTHER, FailureSample
from forge_jobs.model.failures.fingerprints import error_group, plain_message
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ErrorRecord, JobStatus
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.transitions import Transition
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.actions.previews import Apply
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    claim_one,
    dead,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    register,
)

pytestmark = pytest.mark.anyio

KIND = "card.charge"


def boss(storage: Storage, access: Access = ALL) -> Operator:
    return Operator(storage, Actor(name="ada", access=access))


async def fail(storage: Storage, queue: str, message: str, ends: tuple[Transition, ...]) -> JobId:
    """Let a job end its attempts, and count the failures as a pod does."""
    job_id = await enqueue_one(storage, queue=queue, kind=KIND, max_attempts=5)
    lease = await register(storage, queues=(queue,), kinds=(KIND,))
    group = error_group(KIND, "ValueError", message)
    for attempt, end in enumerate(ends, start=1):
        claimed = await claim_one(storage, lease, queue=queue, kinds=(KIND,))
        why: ErrorRecord | None = None
        if end.error is not None:
            why = error(message, attempt=attempt, type="ValueError", traceback=f"line of {message}")
            why = structs.replace(why, error_group=group)
        await finish(storage, claimed, structs.replace(end, error=why))
    now = await storage.cron.now()
    sample = FailureSample(
        queue=queue,
        group=group,
        kind=KIND,
        type="ValueError",
        message=plain_message(message),
        minute=now.astimezone(UTC).replace(second=0, microsecond=0),
        first_at=now,
        last_at=now,
        retried=sum(end.status.value == "failed" for end in ends),
        dead=sum(end.status.value == "dead" for end in ends),
        jobs=(job_id,),
    )
    assert not await storage.jobs.add_failures([sample])
    return job_id


AGAIN = failed(error=error())
DEAD = dead(error=error())


async def test_a_group_shows_the_newest_whole_and_what_became_of_the_jobs(storage: Storage) -> None:
    await fail(storage, "pay", "card 17 declined", (AGAIN, done()))
    await fail(storage, "pay", "card 18 declined", (AGAIN, done()))
    last = await fail(storage, "pay", "card 19 declined", (AGAIN, DEAD))
    async with boss(storage) as operator:
        [group] = (await operator.list_errors()).groups
        assert group.message == "card … declined"
        assert (group.retried, group.dead) == (3, 1)
        shown = await operator.get_error("pay", group.id)

    assert (shown.newest, shown.whole_message) == (last, "card 19 declined")
    assert shown.traceback == "line of card 19 declined"
    assert shown.newest_at is not None
    assert shown.statuses == {"done": 2, "dead": 1}
    assert shown.kinds == {KIND: 3}
    assert sum(shown.pods.values()) == shown.looked_at == 3
    assert sum(shown.pod_versions.values()) == 3
    assert not shown.more


async def test_a_whole_group_is_requeued_by_a_preview(storage: Storage) -> None:
    died = await fail(storage, "pay", "card 17 declined", (DEAD,))
    await fail(storage, "pay", "no route to host", (DEAD,))
    async with boss(storage) as operator:
        group = error_group(KIND, "ValueError", "card 99 declined")
        which = JobFilter(terms=parse_query(f"group:{group}").terms, statuses=(JobStatus.DEAD,))
        preview = await operator.preview_action("requeue_jobs", which)
        assert [job.id for job in preview.samples] == [died]
        action = await operator.apply_action(Apply(token=preview.token, reason="paid"))
        assert (action.changed, action.refused) == (1, 0)


async def test_without_the_right_to_payloads_a_group_has_no_texts(sqlite_storage: Storage) -> None:
    await fail(sqlite_storage, "pay", "card swordfish declined", (DEAD,))
    async with boss(sqlite_storage, Access()) as operator:
        [group] = (await operator.list_errors()).groups
        shown = await operator.get_error("pay", group.id)

    assert group.message == shown.message == shown.traceback == ""
    assert "swordfish" not in str(shown)
    assert shown.statuses == {"dead": 1}


async def test_an_actor_of_some_queues_pages_through_their_groups(storage: Storage) -> None:
    for message in ("no", "not now", "never"):
        for queue in ("a", "vault", "b"):
            await fail(storage, queue, message, (DEAD,))
    seen: list[tuple[str, str]] = []
    cursor: str | None = None
    async with boss(storage, Access(queues=frozenset({"a", "b", "gone"}))) as operator:
        for _ in range(5):
            page = await operator.list_errors(cursor=cursor, limit=2)
            seen += [(each.queue, each.id) for each in page.groups]
            cursor = page.cursor
            assert "vault" not in str(page)
            if cursor is None:
                break
        vault = error_group(KIND, "ValueError", "no")
        with pytest.raises(NotFound):
            await operator.get_error("vault", vault)
        with pytest.raises(NotFound):
            await operator.list_errors(queue="vault")
        with pytest.raises(InvalidInput, match="cursor"):
            await operator.list_errors(cursor="x")

    assert len(seen) == len(set(seen)) == 6
    async with boss(storage) as operator:
        everything = (await operator.list_errors()).groups
    assert seen == [(each.queue, each.id) for each in everything if each.queue != "vault"]


async def test_a_group_whose_jobs_are_gone_still_counts(sqlite_storage: Storage) -> None:
    died = await fail(sqlite_storage, "pay", "no", (DEAD,))
    async with boss(sqlite_storage) as operator:
        await operator.delete_jobs(JobFilter(ids=(died,)))
        shown = await operator.get_error("pay", error_group(KIND, "ValueError", "no"))

    assert (shown.dead, shown.newest, shown.looked_at, shown.statuses) == (1, None, 0, {})


async def test_what_is_no_group_is_not_found(sqlite_storage: Storage) -> None:
    await sqlite_storage.config.set_queue("pay", QueueChange(max_workers=1))
    async with boss(sqlite_storage) as operator:
        for queue, group in (("pay", OTHER), ("nowhere", "abc")):
            with pytest.raises(NotFound):
                await operator.get_error(queue, group)
        for over in (timedelta(0), MINUTE / 2, timedelta(days=401)):
            with pytest.raises(InvalidInput, match="over"):
                await operator.list_errors(over=over)
