"""JobClient.follow_log: the lines that are there, new ones as they come, and the end of the job."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from forge_jobs.clients.blocking import SyncJobClient
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.following import LogFollower
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.progress import NewLine, ProgressNote
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.backends import url_of
from tests.support.factories import claim_one, done, enqueue_one, failed, finish, only
from tests.support.faulty import Faults, faulty
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

AT = datetime(2026, 3, 1, tzinfo=UTC)


async def say(storage: Storage, claimed: ClaimedJob, *texts: str, first: int = 1) -> None:
    """Store lines of a run, as its pod does."""
    lines = tuple(NewLine(seq, AT, 20, text) for seq, text in enumerate(texts, first))
    note = ProgressNote(claim=claimed.claim, attempt=claimed.attempt, lines=lines)
    assert await storage.jobs.note_progress([note]) == [True]
    storage.jobs.announce_changes([claimed.claim.queue])


async def no_looks(faults: Faults) -> None:
    """Let looks fail from now on."""
    faults.down = True
    looks = faults.calls["states"]
    await wait_until(lambda: faults.calls["states"] > looks, description="a look has failed")


async def next_of(follower: LogFollower) -> tuple[int, list[str]]:
    with anyio.fail_after(30):
        page = await anext(follower)
    return page.attempt, [line.text for line in page.lines]


async def rest_of(follower: LogFollower) -> list[tuple[int, list[str]]]:
    with anyio.fail_after(30):
        return [(page.attempt, [line.text for line in page.lines]) async for page in follower]


async def test_lines_come_while_the_job_runs_and_end_with_the_job(
    storage: Storage, client: JobClient, lease: PodLease
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await say(storage, claimed, "one", "two")
    follower = client.follow_log(claimed.claim.job_id)
    assert await next_of(follower) == (1, ["one", "two"])
    await say(storage, claimed, "three", first=3)
    assert await next_of(follower) == (1, ["three"])
    await say(storage, claimed, "four", first=4)
    assert await finish(storage, claimed, done())
    assert await rest_of(follower) == [(1, ["four"])]
    assert await rest_of(client.follow_log(claimed.claim.job_id)) == [
        (1, ["one", "two", "three", "four"])
    ]


async def test_attempts_follow_each_other_from_the_first_that_begins_after(
    storage: Storage, lease: PodLease
) -> None:
    faults = Faults()
    async with JobClient(faulty(storage, faults)) as client:
        follower = client.follow_log(await enqueue_one(storage))
        first = asyncio.ensure_future(next_of(follower))
        await wait_until(lambda: follower.has_looked, description="it has found no line")
        # Two attempts between two looks: the lines of neither are left out.
        await no_looks(faults)
        for texts in (["a", "b"], ["c"]):
            claimed = await claim_one(storage, lease)
            await say(storage, claimed, *texts)
            assert await finish(storage, claimed, failed())
        faults.down = False
        assert [await first, await next_of(follower)] == [(1, ["a", "b"]), (2, ["c"])]
        claimed = await claim_one(storage, lease)
        await say(storage, claimed, "d")
        assert await finish(storage, claimed, done())
        assert await rest_of(follower) == [(3, ["d"])]


async def test_one_attempt_is_followed_until_the_next_one_runs(
    storage: Storage, client: JobClient, lease: PodLease
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await say(storage, claimed, "a")
    assert await finish(storage, claimed, failed())
    claimed = await claim_one(storage, lease)
    await say(storage, claimed, "b")
    job_id = claimed.claim.job_id
    assert await rest_of(client.follow_log(job_id, attempt=1)) == [(1, ["a"])]
    # Without an attempt: from the one that runs.
    assert await next_of(client.follow_log(job_id)) == (2, ["b"])


async def test_what_was_logged_during_an_outage_is_there_after_it(
    storage: Storage, lease: PodLease
) -> None:
    faults = Faults()
    async with JobClient(faulty(storage, faults)) as client:
        await enqueue_one(storage)
        claimed = await claim_one(storage, lease)
        await say(storage, claimed, "one")
        follower = client.follow_log(claimed.claim.job_id)
        assert await next_of(follower) == (1, ["one"])
        news = asyncio.ensure_future(next_of(follower))
        await no_looks(faults)
        await say(storage, claimed, "two", first=2)
        faults.down = False
        assert await news == (1, ["two"])


async def test_a_job_that_is_not_there_or_goes_is_named(
    storage: Storage, client: JobClient, lease: PodLease
) -> None:
    with pytest.raises(InvalidInput, match="job_id"):
        client.follow_log("no id")
    missing = new_job_id()
    with pytest.raises(NotFound, match=missing):
        await anext(client.follow_log(missing))
    job_id = await enqueue_one(storage)
    follower = client.follow_log(job_id)
    news = asyncio.ensure_future(next_of(follower))
    await wait_until(lambda: follower.has_looked, description="it has found no line")
    await storage.jobs.delete(only(job_id))
    with pytest.raises(NotFound, match="was removed"):
        await news


async def test_blocking_programs_follow_too(
    backend: str, storage: Storage, lease: PodLease, tmp_path: Path
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await say(storage, claimed, "one")
    assert await finish(storage, claimed, done())
    url = await url_of(backend, tmp_path)

    def read() -> list[str]:
        with SyncJobClient(lambda: open_storage(url)) as client:
            pages = client.follow_log(claimed.claim.job_id)
            return [line.text for page in pages for line in page.lines]

    assert await asyncio.to_thread(read) == ["one"]
