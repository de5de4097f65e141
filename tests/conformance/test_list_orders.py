"""Lists in the order of times, and counts that say how far they went."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import BulkOutcome, Count, JobFilter, JobOrder, JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queries.terms import Compared
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

ORDERS: tuple[JobOrder, ...] = ("id", "finished", "due")


def in_order(lines: Sequence[JobSummary], order: JobOrder) -> list[JobId]:
    """The plain reference: what a list of these jobs holds, in order."""
    if order == "id":
        return [line.id for line in sorted(lines, key=lambda line: line.id, reverse=True)]
    if order == "finished":
        ended = [(line.finished_at, line.id) for line in lines if line.status in TERMINAL]
        return [job_id for at, job_id in sorted(ended, reverse=True) if at is not None]
    waiting = {JobStatus.PENDING, JobStatus.FAILED}
    due = [(each.due_at, each.id) for each in lines if each.status in waiting and not each.hold]
    return [job_id for _, job_id in sorted(due)]


async def all_of(
    storage: Storage, which: JobFilter, order: JobOrder = "id", limit: int = 1000
) -> list[JobSummary]:
    """Read all lines, by pages."""
    page = await storage.jobs.list(which, order=order, limit=limit)
    lines = list(page.jobs)
    while page.cursor is not None:
        page = await storage.jobs.list(which, order=order, cursor=page.cursor, limit=limit)
        assert len(page.jobs) <= limit
        lines += page.jobs
    return lines


async def change_all(verb: Callable[..., Awaitable[BulkOutcome]]) -> None:
    """Apply a bulk verb to every job."""
    outcome = await verb(JobFilter(), limit=1000)
    while outcome.cursor is not None:
        outcome = await verb(JobFilter(), cursor=outcome.cursor, limit=1000)


@pytest.fixture
async def mixed(storage: Storage, lease: PodLease, clock: ManualClock) -> list[JobSummary]:
    """Jobs of two queues in every status, with several of one time."""
    for _ in range(2):
        for status in JobStatus:
            await a_job(storage, lease, status)
            clock.advance(1)
    for number in range(8):
        tags = ("t",) if number % 2 else ()
        await enqueue_one(
            storage, queue="other", priority=number % 3, tags=tags, delay=number // 2 * SECOND
        )
    clock.advance(10)
    other = await register(storage, queues=["other"])
    taken = await claim(storage, other, limit=5, queue="other")
    for each, outcome in zip(taken, [done(), dead(), done(), dead(), done()], strict=True):
        await finish(storage, each, outcome)
    await storage.jobs.cancel(only(*[await enqueue_one(storage) for _ in range(3)]))
    return await all_of(storage, JobFilter())


FILTERS = [
    JobFilter(),
    JobFilter(queues=("other",)),
    JobFilter(queues=(QUEUE, "other", QUEUE), statuses=("dead", "failed", "cancelled")),  # type: ignore[arg-type]
    JobFilter(statuses=(JobStatus.PENDING,)),
    JobFilter(statuses=(JobStatus.IN_PROGRESS, JobStatus.BLOCKED)),
    JobFilter(tag="t"),
    JobFilter(tag="t", statuses=(JobStatus.DONE,)),
    JobFilter(tag="t", statuses=(JobStatus.PENDING,)),
    JobFilter(kinds=("no.such",)),
    JobFilter(ids=()),
]


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("order", ORDERS)
async def test_a_list_is_in_its_order_and_pages_show_every_job_once(
    storage: Storage, mixed: list[JobSummary], order: JobOrder, limit: int
) -> None:
    for which in FILTERS:
        meant = [line.id for line in await all_of(storage, which)]
        wanted = in_order([line for line in mixed if line.id in meant], order)
        assert [line.id for line in await all_of(storage, which, order, limit)] == wanted, which
    assert len(in_order(mixed, order)) >= 5


@pytest.mark.parametrize("order", ORDERS)
async def test_named_jobs_and_those_of_a_key_come_in_the_order_too(
    storage: Storage, mixed: list[JobSummary], order: JobOrder
) -> None:
    for chosen in (mixed[::2], mixed[:4]):
        named = JobFilter(ids=tuple(line.id for line in chosen))
        assert [line.id for line in await all_of(storage, named, order, 2)] == in_order(
            chosen, order
        )
    for number in range(3):
        await enqueue_one(storage, unique=Unique("k"), delay=number * SECOND)
        await storage.jobs.cancel(JobFilter(unique_key="k"))
    await enqueue_one(storage, unique=Unique("k"), delay=DAY)
    of_key = await all_of(storage, JobFilter(unique_key="k"))
    assert len(of_key) == 4
    found = await all_of(storage, JobFilter(unique_key="k"), order, 1)
    assert [line.id for line in found] == in_order(of_key, order)


@pytest.mark.parametrize("order", ["finished", "due"])
async def test_pages_by_time_neither_skip_nor_repeat_what_stays(
    storage: Storage, lease: PodLease, order: JobOrder
) -> None:
    """Many jobs of one time, of which some go between two pages: the last one shown among them."""
    requests = [new_job() for _ in range(9)]
    await storage.jobs.enqueue(requests)
    ids = sorted(each.id for each in requests)
    if order == "finished":
        await storage.jobs.cancel(JobFilter())
        ids.reverse()
    first = await storage.jobs.list(JobFilter(), order=order, limit=3)
    assert [line.id for line in first.jobs] == ids[:3]
    await storage.jobs.delete(only(ids[2], ids[4]))
    second = await storage.jobs.list(JobFilter(), order=order, cursor=first.cursor, limit=3)
    assert [line.id for line in second.jobs] == [ids[3], ids[5], ids[6]]
    last = await storage.jobs.list(JobFilter(), order=order, cursor=second.cursor, limit=3)
    assert [line.id for line in last.jobs] == ids[7:]
    assert last.cursor is None


@pytest.mark.parametrize("cursor", ["", "nonsense", "due.1", "due.x.y", "finished.-1.a", "☃"])
@pytest.mark.parametrize("order", ORDERS)
async def test_a_cursor_of_another_order_is_refused_by_name(
    storage: Storage, order: JobOrder, cursor: str
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(2)])
    given = {each: (await storage.jobs.list(JobFilter(), order=each, limit=1)) for each in ORDERS}
    others = [each.cursor for name, each in given.items() if name != order and each.cursor]
    for wrong in (cursor, *others):
        with pytest.raises(InvalidInput) as refused:
            await storage.jobs.list(JobFilter(), order=order, cursor=wrong)
        assert refused.value.field == "cursor"


async def test_an_order_that_is_none_is_refused_by_name(storage: Storage) -> None:
    with pytest.raises(InvalidInput, match="id, finished, due") as refused:
        await storage.jobs.list(JobFilter(), order="newest")  # type: ignore[arg-type]
    assert refused.value.field == "order"


async def test_walks_by_time_say_how_far_they_looked_and_go_on_there(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", 400)
    monkeypatch.setattr("forge_jobs.storage.redis.jobs.filters.WALKED_ON_REDIS", 400)
    wanted = []
    for queue in ("one", "other"):
        for priority in range(6):
            tagged = [new_job(queue=queue, priority=priority, tags=("rare",)) for _ in range(210)]
            meant = new_job(queue=queue, priority=priority, tags=("rare",), schedule="nightly")
            await storage.jobs.enqueue([*tagged, meant])
            wanted.append(meant.id)
    which = JobFilter(tag="rare", schedule="nightly")
    orders: tuple[JobOrder, ...] = ("due", "finished")
    for order in orders:
        pages = [await storage.jobs.list(which, order=order)]
        while pages[-1].cursor is not None:
            assert pages[-1].looked_back_to is not None
            pages.append(await storage.jobs.list(which, order=order, cursor=pages[-1].cursor))
        found = [line for page in pages for line in page.jobs]
        assert [line.id for line in found] == in_order(found, order)
        assert {line.id for line in found} == set(wanted)
        assert 1 < len(pages) <= 30
        assert pages[-1].looked_back_to is None
        await change_all(storage.jobs.cancel)


async def test_a_count_is_exact_or_says_that_there_are_more(
    storage: Storage, mixed: list[JobSummary]
) -> None:
    for which in FILTERS:
        number = len(await all_of(storage, which))
        assert await storage.jobs.count(which) == Count(number)
        assert await storage.jobs.count(which, at_most=max(number, 1)) == Count(number)
        if number > 1:
            more = await storage.jobs.count(which, at_most=number - 1)
            assert more == Count(number - 1, is_more=True)
            assert (more.is_exact, str(more)) == (False, f"{number - 1}+")
    newest = mixed[3].id
    assert await storage.jobs.count(JobFilter(), cursor=newest) == Count(len(mixed) - 4)


@pytest.mark.parametrize("status", JobStatus)
async def test_a_store_without_queues_has_no_jobs(storage: Storage, status: JobStatus) -> None:
    which = JobFilter(statuses=(status,))
    for meant in (which, JobFilter(statuses=(status,), terms=parse_query("due:>-1h").terms)):
        assert await storage.jobs.count(meant) == Count(0)
        assert not (await storage.jobs.list(meant)).jobs


@pytest.mark.parametrize("at_most", [0, -1, 1_000_001, "5", None])
async def test_a_bound_of_a_count_that_is_none_is_refused_by_name(
    storage: Storage, at_most: int
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await storage.jobs.count(JobFilter(), at_most=at_most)
    assert refused.value.field == "at_most"


async def test_a_count_that_looks_at_each_job_says_how_far_it_came(
    storage: Storage, lease: PodLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", 400)
    monkeypatch.setattr("forge_jobs.storage.redis.jobs.filters.WALKED_ON_REDIS", 400)
    for queue in ("short", "old", "new"):
        fill = [new_job(queue=queue, tags=("x",)) for _ in range(10 if queue == "short" else 700)]
        await storage.jobs.enqueue(fill)
        await storage.jobs.enqueue([new_job(queue=queue, kind="a", tags=("x",)) for _ in range(5)])
    which = JobFilter(kinds=("a", "b"), tag="x", queues=("short", "old", "new"))
    counts = [await storage.jobs.count(which)]
    while counts[-1].looked_back_to is not None:
        assert not counts[-1].is_exact
        counts.append(await storage.jobs.count(which, cursor=counts[-1].looked_back_to))
    assert sum(each.number for each in counts) == 15
    if "redis" not in str(storage):
        assert len(counts) > 1


async def test_a_retry_stands_by_its_new_due_time(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first = await enqueue_one(storage)
    await run_one(storage, lease, failed(5 * SECOND))
    second = await enqueue_one(storage, delay=2 * SECOND)
    page = await storage.jobs.list(JobFilter(), order="due")
    assert [line.id for line in page.jobs] == [second, first]


async def test_a_time_that_only_some_statuses_have_is_searched_among_these(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", 20)
    monkeypatch.setattr("forge_jobs.storage.redis.jobs.filters.WALKED_ON_REDIS", 20)
    lease = await register(storage)
    ended = await enqueue_one(storage)
    assert await finish(storage, await claim_one(storage, lease), done())
    runs = await enqueue_one(storage)
    started = await claim_one(storage, lease)
    assert await storage.jobs.record_start([started.claim]) == [True]
    waits = [new_job(delay=DAY) for _ in range(700)]
    await storage.jobs.enqueue(waits)
    now = await storage.cron.now()
    finished = Compared("finished", ">", now - DAY)
    running = Compared("running", ">=", timedelta(0))
    for term, job_id in ((finished, ended), (running, runs)):
        page = await storage.jobs.list(JobFilter(terms=(term,)))
        assert [line.id for line in page.jobs] == [job_id]
        assert page.looked_back_to is None
        assert await storage.jobs.count(JobFilter(terms=(term,))) == Count(1)
    for both in (
        JobFilter(terms=(finished, running)),
        JobFilter(statuses=(JobStatus.PENDING,), terms=(finished,)),
    ):
        assert (await storage.jobs.list(both)).jobs == ()
        assert await storage.jobs.count(both) == Count(0)
        assert not (await storage.jobs.cancel(both)).changed
