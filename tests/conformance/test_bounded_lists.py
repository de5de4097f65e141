"""Lists and bulk verbs look at so many jobs in a call, say how far they came, and go on."""

from typing import Any

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import BulkOutcome, JobFilter, JobStatus, Page
from forge_jobs.storage.cursors import WALKED, WALKED_ON_REDIS
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, KIND, enqueue_one, new_job

pytestmark = pytest.mark.anyio

OTHER, RARE = "other", "rare"


@pytest.fixture
def walked(storage: Storage) -> int:
    """How many jobs one call looks at."""
    return WALKED_ON_REDIS if "redis" in str(storage) else WALKED


async def far_apart(storage: Storage, jobs_between: int) -> tuple[JobId, JobId]:
    """Two jobs with a tag and a schedule, and many others between them."""
    fields: dict[str, Any] = {"kind": RARE, "tags": ("rare",), "schedule": "nightly", "delay": DAY}
    first = await enqueue_one(storage, **fields)
    for start in range(0, jobs_between, 10_000):
        count = min(10_000, jobs_between - start)
        plain = [new_job(kind=OTHER, tags=("common",), delay=DAY) for _ in range(count)]
        await storage.jobs.enqueue(plain)
    return first, await enqueue_one(storage, **fields)


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


# What no index of the store answers alone.
COMBINED = [
    JobFilter(tag="rare", kinds=(RARE, OTHER), statuses=(JobStatus.PENDING,)),
    JobFilter(queues=("default",), schedule="nightly", kinds=(RARE, OTHER)),
    JobFilter(kinds=(OTHER, RARE), tag="rare"),
]


async def test_lists_and_bulk_verbs_say_how_far_they_looked_and_go_on_there(
    storage: Storage, walked: int
) -> None:
    first, last = await far_apart(storage, walked + 500)
    for which in (JobFilter(tag="rare"), JobFilter(kinds=(RARE,)), *COMBINED):
        pages = await every_page(storage, which)
        assert [each for page in pages for each in ids_of(page)] == [last, first]
        assert pages[-1].looked_back_to is None
        assert len(pages) <= 3
        for page in pages[:-1]:
            assert page.looked_back_to == page.cursor
            assert first < (page.looked_back_to or "") < last
    nothing = JobFilter(kinds=(OTHER,), tag="none", statuses=(JobStatus.PENDING,))
    pages = await every_page(storage, nothing)
    assert not any(page.jobs for page in pages)
    assert len(pages) <= 3
    for which in COMBINED:
        outcomes = await run_now(storage, which)
        assert [each for outcome in outcomes for each in outcome.changed] == [first, last]
        assert len(outcomes) <= 3


async def test_a_full_page_and_the_last_page_say_nothing_of_it(storage: Storage) -> None:
    ids = [await enqueue_one(storage, tags=("rare",)) for _ in range(3)]
    full, rest = await every_page(storage, JobFilter(tag="rare"), limit=2)
    assert (ids_of(full), full.looked_back_to, full.cursor) == (ids[:0:-1], None, ids[1])
    assert (ids_of(rest), rest.looked_back_to, rest.cursor) == (ids[:1], None, None)


async def test_several_queues_are_walked_to_the_same_place(storage: Storage, walked: int) -> None:
    wanted = []
    for number in range(4):
        queue = f"q{number % 2}"
        wanted.append(await enqueue_one(storage, queue=queue, tags=("rare",), kind=KIND))
        plain = [new_job(queue=queue, kind=KIND, delay=DAY) for _ in range(walked // 3)]
        for start in range(0, len(plain), 10_000):
            await storage.jobs.enqueue(plain[start : start + 10_000])
    which = JobFilter(tag="rare", kinds=(KIND, OTHER), queues=("q0", "q1"))
    pages = await every_page(storage, which, limit=3)
    assert [each for page in pages for each in ids_of(page)] == wanted[::-1]
