"""A cluster of which one server falls silent: watches of its queues wait, and no others."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from forge_jobs import JobClient
from forge_jobs.clients.watching import Watch, Watches
from forge_jobs.errors import Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus, NewJob
from forge_jobs.model.progress import JobState
from forge_jobs.storage.redis.jobs import filters, read
from tests.support.factories import DAY, claim_one, done, finish, new_job, register
from tests.support.shards import FAULTS, Shards

pytestmark = [pytest.mark.anyio, pytest.mark.long]


async def next_of(watch: Watch) -> JobState:
    with anyio.fail_after(30):
        return await anext(watch)


def located_there(shards: Shards, queue: str) -> NewJob:
    """A job whose locator the failing server holds."""
    while not shards.is_located_there((job := new_job(queue=queue)).id):
        pass
    return job


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_silent_server_keeps_no_other_watch_waiting(shards: Shards, fault: str) -> None:
    storage = shards.storage
    healthy, lost = shards.healthy[0], shards.lost[0]
    lease = await register(storage, queues=(healthy, lost), lease_for=DAY)
    await storage.jobs.enqueue([new_job(queue=lost)])
    assert await finish(storage, await claim_one(storage, lease, queue=lost), done())
    waiting = {healthy: located_there(shards, healthy), lost: new_job(queue=lost)}
    await storage.jobs.enqueue([*waiting.values()])
    async with JobClient(storage) as client:
        watches = {name: client.watch(queue=name) for name in waiting}
        of_job = client.watch(waiting[healthy].id)
        for name, watch in {**watches, healthy + " job": of_job}.items():
            assert (await next_of(watch)).id == waiting[name.partition(" ")[0]].id
        with shards.down(fault):
            assert await finish(storage, await claim_one(storage, lease, queue=healthy), done())
            seen = JobStatus.PENDING
            while seen is not JobStatus.DONE:
                seen = (await next_of(watches[healthy])).status
            assert [state.status async for state in of_job][-1] is JobStatus.DONE
            assert not watches[lost].is_over
        # The job that ended before the watch is still known, and does not come.
        assert await finish(storage, await claim_one(storage, lease, queue=lost), done())
        seen = JobStatus.PENDING
        while seen is not JobStatus.DONE:
            state = await next_of(watches[lost])
            assert state.id == waiting[lost].id
            seen = state.status


async def test_a_server_that_falls_silent_while_a_list_is_read_is_named(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = shards.storage
    wanted = {name: new_job(queue=name) for name in (*shards.healthy[:2], *shards.lost[:2])}
    await storage.jobs.enqueue([*wanted.values()])
    watch = Watch(queue=shards.lost[0])

    def falls_silent(call: Callable[..., Any]) -> Callable[..., Any]:
        async def then_silent(*arguments: Any) -> Any:
            found = await call(*arguments)
            down.enter_context(shards.down("frozen"))
            return found

        return then_silent

    newest = filters.newest
    for which in (JobFilter(), JobFilter(queues=(shards.lost[0],))):
        with ExitStack() as down:
            monkeypatch.setattr(read, "newest", falls_silent(newest))
            if which.queues:
                with pytest.raises(Unavailable):
                    await storage.jobs.list(which)
            else:
                page = await storage.jobs.list(which)
                assert {line.queue for line in page.jobs} == set(shards.healthy[:2])
                assert set(page.silent) == set(shards.lost[:2])
    with ExitStack() as down:
        watches = Watches(storage.jobs, is_parted=storage.is_parted)
        await watches._look([watch])
        assert not watch._has_looked
    monkeypatch.setattr(read, "newest", newest)
    await watches._look([watch])
    assert (await next_of(watch)).id == wanted[shards.lost[0]].id
