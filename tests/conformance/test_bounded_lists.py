"""Lists and bulk verbs look at so many jobs in a call, say how far they came, and go on."""

from typing import Any

import pytest

from forge_jobs.model.filters import BulkOutcome, JobFilter, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, QUEUE, enqueue_one, new_job

pytestmark = pytest.mark.anyio

ONE, OTHER = "one", "other"
TAG = "common"
WALKED, WALKED_ON_REDIS = 5_000, 2_000


@pytest.fixture
def many(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> int:
    """Store more jobs than one call looks at, in any index that a filter walks."""
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", WALKED)
    monkeypatch.setattr("forge_jobs.storage.redis.jobs.filters.WALKED_ON_REDIS", WALKED_ON_REDIS)
    return 2 * WALKED_ON_REDIS + 1_000 if "redis" in str(storage) else WALKED + 500


async def put_wanted(storage: Storage, queue: str = QUEUE) -> JobId:
    """Store a job with the kind of half of the others, and the tag of the other half."""
    fields: dict[str, Any] = {"tags": (TAG, "rare"), "schedule": "nightly", "delay": DAY}
    return await enqueue_one(storage, queue=queue, kind=ONE, **fields)


async def put_others(storage: Storage, number: int, queue: str = QUEUE) -> None:
    for start in range(0, number, 10_000):
        count = min(10_000, number - start) // 2
        of_the_kind = [new_job(queue=queue, kind=ONE, delay=DAY) for _ in range(count)]
        tagged = [new_job(queue=queue, kind=OTHER, tags=(TAG,), delay=DAY) for _ in range(count)]
        await storage.jobs.enqueue([*of_the_kind, *tagged])


async def every_page(storage: Storage, which: JobFilter, limit: int = 50) -> list[Page]:
    pages = [await storage.jobs.list(which, limit=limit)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(await storage.jobs.list(which, cursor=cursor, limit=limit))
    return pages


async def run_now(storage: Storage, which: JobFilter) -> list[BulkOutcome]:
    """Make all of them due, in as many calls as that takes."""
    outcomes = [await storage.jobs.run_now(which)]
    while (cursor := outcomes[-1].cursor) is not None:
        outcomes.append(await storage.jobs.run_now(which, cursor=cursor))
    return outcomes


def ids_of(page: Page) -> list[JobId]:
    return [job.id for job in page.jobs]


# What no index of a store answers alone.
COMBINED = [
    JobFilter(kinds=(ONE,), tag=TAG),
    JobFilter(kinds=(ONE, "none"), tag=TAG, statuses=(JobStatus.PENDING,)),
    JobFilter(queues=(QUEUE,), kinds=(ONE,), tag=TAG),
]
# What one does on some stores.
SIMPLE = [JobFilter(tag="rare"), JobFilter(schedule="nightly", kinds=(ONE, OTHER))]


async def test_lists_and_bulk_verbs_say_how_far_they_looked_and_go_on_there(
    storage: Storage, many: int
) -> None:
    first = await put_wanted(storage)
    await put_others(storage, many)
    last = await put_wanted(storage)
    for which in (*SIMPLE, *COMBINED):
        pages = await every_page(storage, which)
        assert [each for page in pages for each in ids_of(page)] == [last, first]
        assert pages[-1].looked_back_to is None
        assert (which in COMBINED) < len(pages) <= 3
        for page in pages[:-1]:
            assert page.looked_back_to == page.cursor
            assert first < (page.looked_back_to or "") < last
    nothing = JobFilter(kinds=(ONE,), tag=TAG, schedule="none")
    pages = await every_page(storage, nothing)
    assert not any(page.jobs for page in pages)
    assert len(pages) <= 3
    for which in COMBINED:
        outcomes = await run_now(storage, which)
        assert [each for outcome in outcomes for each in outcome.changed] == [first, last]
        assert 1 < len(outcomes) <= 3


async def test_a_full_page_and_the_last_page_say_nothing_of_it(storage: Storage) -> None:
    ids = [await enqueue_one(storage, tags=("rare",)) for _ in range(3)]
    full, rest = await every_page(storage, JobFilter(tag="rare"), limit=2)
    assert (ids_of(full), full.looked_back_to, full.cursor) == (ids[:0:-1], None, ids[1])
    assert (ids_of(rest), rest.looked_back_to, rest.cursor) == (ids[:1], None, None)


async def test_several_queues_are_walked_to_the_same_place(storage: Storage, many: int) -> None:
    """Jobs that one queue has beyond that place wait until the other queues have been read."""
    wanted = [await put_wanted(storage, "short")]
    for queue in ("old", "new"):
        wanted.append(await put_wanted(storage, queue))
        await put_others(storage, many // 2 + 500, queue)
        wanted.append(await put_wanted(storage, queue))
    wanted.append(await put_wanted(storage, "short"))
    which = JobFilter(tag=TAG, kinds=(ONE,), queues=("short", "old", "new"))
    pages = await every_page(storage, which)
    assert [each for page in pages for each in ids_of(page)] == wanted[::-1]
    outcomes = await run_now(storage, which)
    assert [each for outcome in outcomes for each in outcome.changed] == wanted
    assert min(len(pages), len(outcomes)) > 1
