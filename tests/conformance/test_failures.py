"""Groups of failures: added by pods, counted per minute, read in pages, gone after their time."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.failures import (
    MOST_GROUPS,
    MOST_SAMPLES,
    OTHER,
    ErrorGroup,
    FailureCount,
    FailureSample,
)
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.retention import Kept
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    cleaned_up,
    enqueue_one,
    error,
    failed,
    get_job,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio


def a_sample(at: datetime, group: str = "aaaa", **overrides: Any) -> FailureSample:
    given: dict[str, Any] = {
        "queue": QUEUE,
        "kind": "gh.fetch",
        "type": "ValueError",
        "message": "card … declined",
        "retried": 1,
    }
    return FailureSample(
        group=group,
        minute=at.replace(second=0, microsecond=0),
        first_at=at,
        last_at=at,
        **given | overrides,
    )


async def groups(
    storage: Storage, clock: ManualClock, ago: timedelta = DAY, **asked: Any
) -> tuple[ErrorGroup, ...]:
    now = clock.now()
    given: dict[str, Any] = {"step": HOUR, "limit": 1000}
    page = await storage.jobs.error_groups(now - ago, now + MINUTE, **given | asked)
    assert page.cursor is None
    return page.groups


async def test_a_group_comes_back_as_it_was_added(storage: Storage, clock: ManualClock) -> None:
    now, jobs = clock.now(), (new_job_id(), new_job_id())
    added = a_sample(
        now,
        queue="a'b {} %s",
        message="ünder <b>… \\n",
        retried=2,
        dead=1,
        jobs=jobs,
        version="8f2c",
    )
    assert await storage.jobs.add_failures([added]) == []
    assert await storage.jobs.add_failures([]) == []
    [found] = await groups(storage, clock, step=MINUTE, ago=HOUR)
    assert found == ErrorGroup(
        id="aaaa",
        queue="a'b {} %s",
        kind="gh.fetch",
        type="ValueError",
        message="ünder <b>… \\n",
        retried=2,
        dead=1,
        first_at=now,
        last_at=now,
        versions=("8f2c",),
        jobs=jobs[::-1],
        counts=(FailureCount(at=added.minute, retried=2, dead=1),),
    )
    asked = (now - HOUR, now + MINUTE)
    assert await storage.jobs.error_group("a'b {} %s", "aaaa", *asked) == found
    assert await storage.jobs.error_group("a'b {} %s", "bbbb", *asked) is None
    assert await storage.jobs.error_group("other", "aaaa", *asked) is None


async def test_what_pods_add_is_summed(storage: Storage, clock: ManualClock) -> None:
    start = clock.now()
    first, second = new_job_id(), new_job_id()
    await storage.jobs.add_failures([a_sample(start, jobs=(first,), version="1")])
    clock.advance(30 * SECOND)
    later = clock.now()
    await storage.jobs.add_failures(
        [
            a_sample(later, jobs=(second, first), version="2", dead=3),
            a_sample(later, "bbbb"),
            a_sample(later, queue="other"),
        ]
    )
    # A pod whose call was late.
    await storage.jobs.add_failures([a_sample(start - MINUTE, version="1")])
    found = {
        (group.queue, group.id): group
        for group in await groups(storage, clock, step=MINUTE, ago=HOUR)
    }
    assert set(found) == {(QUEUE, "aaaa"), (QUEUE, "bbbb"), ("other", "aaaa")}
    group = found[QUEUE, "aaaa"]
    assert (group.retried, group.dead) == (3, 3)
    assert (group.first_at, group.last_at) == (start - MINUTE, later)
    assert group.versions == ("1", "2")
    assert group.jobs == (first, second)
    assert [(each.at, each.retried, each.dead) for each in group.counts] == [
        (start - MINUTE, 1, 0),
        (start, 2, 3),
    ]


async def test_failures_added_at_once_are_all_there(storage: Storage, clock: ManualClock) -> None:
    sample = a_sample(clock.now(), dead=1)
    await asyncio.gather(*(storage.jobs.add_failures([sample]) for _ in range(20)))
    [group] = await groups(storage, clock)
    assert (group.retried, group.dead) == (20, 20)


async def test_a_range_counts_its_own_minutes_in_steps(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    clock.advance(start - clock.now())
    for minute in (0, 1, 59, 60, 61, 130):
        await storage.jobs.add_failures([a_sample(start + minute * MINUTE)])
    await storage.jobs.add_failures([a_sample(start + 200 * MINUTE, "late")])
    page = await storage.jobs.error_groups(start + MINUTE, start + 130 * MINUTE, step=HOUR)
    [group] = page.groups
    assert [(each.at, each.retried) for each in group.counts] == [(start, 2), (start + HOUR, 2)]
    assert (group.retried, group.last_at) == (4, start + 130 * MINUTE)
    quiet = (start + 90 * MINUTE, start + 100 * MINUTE)
    assert (await storage.jobs.error_groups(*quiet)).groups == ()
    known = await storage.jobs.error_group(QUEUE, "aaaa", *quiet)
    assert known is not None
    assert (known.retried, known.counts, known.first_at) == (0, (), start)


async def test_pages_go_from_the_last_failure_back(storage: Storage, clock: ManualClock) -> None:
    now = clock.now()
    names = [(queue, f"g{number}") for queue in ("a", "b", "c") for number in range(4)]
    # Two by two at the same time: queue and group decide.
    for place, (queue, group) in enumerate(names):
        at = now - place // 6 * SECOND
        await storage.jobs.add_failures([a_sample(at, group, queue=queue)])
    meant = sorted(names[:6], reverse=True) + sorted(names[6:], reverse=True)
    for size in (1, 2, 5, 12, 13):
        found: list[tuple[str, str]] = []
        cursor = None
        while True:
            page = await storage.jobs.error_groups(
                now - HOUR, now + MINUTE, limit=size, cursor=cursor
            )
            found += ((group.queue, group.id) for group in page.groups)
            assert len(page.groups) <= size
            assert len(found) <= len(meant)
            cursor = page.cursor
            if cursor is None:
                break
        assert found == meant
    assert [group.queue for group in await groups(storage, clock, queue="b")] == ["b"] * 4
    assert await groups(storage, clock, queue="nobody") == ()


async def test_a_group_names_the_newest_jobs(storage: Storage, clock: ManualClock) -> None:
    jobs = [new_job_id() for _ in range(3 * MOST_SAMPLES)]
    for job_id in jobs:
        await storage.jobs.add_failures([a_sample(clock.now(), jobs=(job_id,))])
    [group] = await groups(storage, clock)
    assert group.jobs == tuple(jobs[: -MOST_SAMPLES - 1 : -1])


async def test_beyond_the_most_groups_of_a_queue_the_rest_is_one(
    storage: Storage, clock: ManualClock
) -> None:
    now = clock.now()
    named = [a_sample(now, f"g{number:04}") for number in range(MOST_GROUPS)]
    await storage.jobs.add_failures(named)
    job_id = new_job_id()
    more = [a_sample(now, f"h{number}", dead=1, jobs=(job_id,)) for number in range(3)]
    await storage.jobs.add_failures([*more, named[7], a_sample(now, "new", queue="another")])
    found: dict[tuple[str, str], ErrorGroup] = {}
    cursor = None
    while True:
        page = await storage.jobs.error_groups(now - HOUR, now + MINUTE, limit=1000, cursor=cursor)
        found |= {(group.queue, group.id): group for group in page.groups}
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == MOST_GROUPS + 2
    other = found[QUEUE, OTHER]
    assert (other.kind, other.type, other.message) == ("", "", "")
    assert (other.retried, other.dead, other.jobs) == (3, 3, (job_id,))
    assert found[QUEUE, "g0007"].retried == 2
    assert found["another", "new"].kind == "gh.fetch"


async def test_groups_go_when_they_have_not_failed_for_their_time(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now()
    await storage.jobs.add_failures([a_sample(start), a_sample(start, "bbbb")])
    clock.advance(2 * DAY)
    await storage.jobs.add_failures([a_sample(clock.now())])
    clock.advance(2 * DAY)
    kept = Kept(errors=3 * DAY)
    assert await cleaned_up(storage, kept=kept)
    [group] = await groups(storage, clock, ago=10 * DAY)
    # A group keeps its beginning, and loses the counts of hours past their time.
    assert (group.id, group.first_at, group.retried) == ("aaaa", start, 1)
    assert await cleaned_up(storage, kept=kept) == 0
    clock.advance(2 * DAY)
    assert await cleaned_up(storage, kept=kept)
    assert await groups(storage, clock, ago=10 * DAY) == ()


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "1 a"}, "cursor"),
        ({"step": timedelta(seconds=30)}, "step"),
        ({"step": timedelta(minutes=1.5)}, "step"),
        ({"since": datetime(2030, 1, 1)}, "since"),  # noqa: DTZ001
        ({"since": None}, "since"),
        ({"ago": 3 * DAY}, "step"),
    ],
)
async def test_a_bad_question_is_refused(
    storage: Storage, clock: ManualClock, asked: dict[str, Any], field: str
) -> None:
    now, asked = clock.now(), {**asked}
    since = asked.pop("since", now - asked.pop("ago", HOUR))
    with pytest.raises(InvalidInput) as refused:
        await storage.jobs.error_groups(since, now, **asked)
    assert refused.value.field == field


async def test_the_record_of_a_failure_keeps_its_group(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage)
    for group in ("aaaa", "bbbb", ""):
        await run_one(storage, lease, failed(error=error(error_group=group)))
    found = await get_job(storage, job_id)
    assert [each.error_group for each in found.errors] == ["aaaa", "bbbb", ""]
