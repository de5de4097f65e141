"""JobClient.watch: the present state, each change, and always the last state."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from forge_jobs.clients import watching
from forge_jobs.clients.blocking import SyncJobClient
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.watching import Watch, Watches
from forge_jobs.errors import InvalidInput, NotFound, SlowWatcher, StorageError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.progress import JobState, NewProgress, ProgressNote
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.backends import url_of
from tests.support.factories import (
    KIND,
    QUEUE,
    claim_one,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    only,
)
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio
Look = Callable[[], Awaitable[list[JobStatus]]]
Run = Callable[[Transition], Awaitable[JobId]]

NEVER = 3600.0
"""Seconds between two looks: only wake-ups make a watch look."""


async def next_of(watch: Watch) -> JobState:
    with anyio.fail_after(30):
        return await anext(watch)


async def all_of(watch: Watch) -> list[JobState]:
    with anyio.fail_after(30):
        return [state async for state in watch]


async def tell(storage: Storage, claimed: ClaimedJob, current: float) -> None:
    note = ProgressNote(
        claim=claimed.claim, attempt=claimed.attempt, progress=NewProgress(current, 10)
    )
    assert await storage.jobs.note_progress([note]) == [True]
    storage.jobs.announce_changes([claimed.claim.queue])


async def test_a_job_is_followed_to_its_end(
    storage: Storage, client: JobClient, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    watch = client.watch(job_id)
    first = await next_of(watch)
    assert (first.id, first.status, first.attempt) == (job_id, JobStatus.PENDING, 0)
    claimed = await claim_one(storage, lease)
    running = await next_of(watch)
    assert (running.status, running.attempt) == (JobStatus.IN_PROGRESS, 1)
    await tell(storage, claimed, 3)
    progressed = await next_of(watch)
    assert progressed.progress is not None
    assert progressed.progress.fraction == 0.3
    await finish(storage, claimed, failed())
    assert (await next_of(watch)).status is JobStatus.FAILED
    claimed = await claim_one(storage, lease)
    assert (await next_of(watch)).attempt == 2
    await tell(storage, claimed, 10)
    await finish(storage, claimed, done())
    last = (await all_of(watch))[-1]
    assert last.status is JobStatus.DONE
    assert last.progress is not None
    assert last.progress.current == 10


@pytest.mark.parametrize("end", [done(), dead()], ids=["done", "dead"])
async def test_a_finished_job_yields_its_last_state_and_no_more(
    storage: Storage, client: JobClient, lease: PodLease, end: object
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await finish(storage, claimed, end)  # type: ignore[arg-type]
    [state] = await all_of(client.watch(claimed.claim.job_id))
    assert state.is_final


async def test_what_comes_between_two_reads_is_merged_and_the_last_is_there(
    storage: Storage, client: JobClient, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    watch, other = client.watch(job_id), client.watch(job_id)
    await next_of(watch)
    claimed = await claim_one(storage, lease)
    for current in range(5):
        await tell(storage, claimed, current)
    await finish(storage, claimed, done())
    # The other watch has read nothing so far.
    await wait_until(lambda: other.is_over, description="the end is seen")
    [last] = await all_of(other)
    assert last.status is JobStatus.DONE
    assert (await all_of(watch))[-1] == last


async def test_an_unknown_job_and_one_that_is_removed(storage: Storage, client: JobClient) -> None:
    with pytest.raises(NotFound, match="there is no job"):
        await next_of(client.watch(new_job_id()))
    job_id = await enqueue_one(storage)
    watch = client.watch(job_id)
    await next_of(watch)
    await client.delete(job_id)
    with pytest.raises(NotFound, match="was removed while it was watched"):
        await next_of(watch)


async def test_bad_arguments_are_refused(client: JobClient) -> None:
    with pytest.raises(InvalidInput, match="job_id"):
        client.watch()
    with pytest.raises(InvalidInput, match="job_id"):
        client.watch(new_job_id(), queue=QUEUE)
    with pytest.raises(InvalidInput, match="job_id"):
        client.watch("x")
    with pytest.raises(InvalidInput, match="queue"):
        client.watch(queue="a b")


async def test_the_jobs_of_a_queue_are_followed(
    storage: Storage, client: JobClient, lease: PodLease
) -> None:
    await enqueue_one(storage)
    before = await claim_one(storage, lease)
    await finish(storage, before, done())
    waiting = await enqueue_one(storage)
    await enqueue_one(storage, queue="other")
    watch = client.watch(queue=QUEUE)
    seen: dict[JobId, list[JobStatus]] = {}

    async def read_until(job_id: JobId, status: JobStatus) -> None:
        while seen.get(job_id, [None])[-1] is not status:
            state = await next_of(watch)
            seen.setdefault(state.id, []).append(state.status)

    await read_until(waiting, JobStatus.PENDING)
    claimed = await claim_one(storage, lease)
    await read_until(waiting, JobStatus.IN_PROGRESS)
    await finish(storage, claimed, done())
    await read_until(waiting, JobStatus.DONE)
    # One that came and ended between two looks.
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await finish(storage, claimed, dead())
    await read_until(claimed.claim.job_id, JobStatus.DEAD)
    assert set(seen) == {waiting, claimed.claim.job_id}
    await watch.aclose()
    with pytest.raises(StopAsyncIteration):
        await next_of(watch)


class TestJobsThatAreRequeued:
    """Jobs of a watched queue that have ended, and go on. Each look is made by hand."""

    @pytest.fixture
    def watch(self) -> Watch:
        return Watch(queue=QUEUE)

    @pytest.fixture
    def look(self, storage: Storage, watch: Watch) -> Look:
        watches = Watches(storage.jobs)

        async def look() -> list[JobStatus]:
            await watches._look([watch])
            found = list(watch._waiting.values())
            watch._waiting.clear()
            return [state.status for state in found]

        return look

    @pytest.fixture
    async def run(self, storage: Storage, lease: PodLease) -> Run:
        async def run(end: Transition) -> JobId:
            claimed = await claim_one(storage, lease)
            assert await finish(storage, claimed, end)
            return claimed.claim.job_id

        return run

    @pytest.mark.parametrize("seen", ["before the watch", "by the last look", "by an earlier look"])
    async def test_the_job_waits_again(
        self, storage: Storage, seen: str, look: Look, run: Run
    ) -> None:
        job_id = await self.has_died(storage, seen, look, run)
        await storage.jobs.requeue(only(job_id))
        assert await look() == [JobStatus.PENDING]
        await run(done())
        assert await look() == [JobStatus.DONE]
        assert await look() == await look() == []

    @pytest.mark.parametrize("seen", ["before the watch", "by the last look", "by an earlier look"])
    @pytest.mark.parametrize("end", [done(), dead()], ids=["done", "dead"])
    async def test_the_job_ends_again_between_two_looks(
        self, storage: Storage, seen: str, end: Transition, look: Look, run: Run
    ) -> None:
        job_id = await self.has_died(storage, seen, look, run)
        await storage.jobs.requeue(only(job_id))
        await run(end)
        assert await look() == [end.status]
        assert await look() == await look() == []

    async def test_the_store_does_not_answer_the_look_that_would_see_the_end(
        self, storage: Storage, watch: Watch, look: Look, run: Run
    ) -> None:
        job_id = await self.has_died(storage, "by an earlier look", look, run)
        await storage.jobs.requeue(only(job_id))
        await run(done())
        # The list came, the states did not.
        assert [*watch.wanted({QUEUE: await Watches(storage.jobs)._lines(QUEUE)})] == [job_id]
        assert await look() == [JobStatus.DONE]

    @pytest.mark.parametrize("is_requeued", [False, True])
    async def test_the_job_ends_between_the_list_and_the_states(
        self, storage: Storage, watch: Watch, look: Look, run: Run, *, is_requeued: bool
    ) -> None:
        job_id = await enqueue_one(storage)
        wanted = [*watch.wanted({QUEUE: await Watches(storage.jobs)._lines(QUEUE)})]
        await run(dead())
        watch.saw(await storage.jobs.states(wanted), wanted)
        assert (await next_of(watch)).status is JobStatus.DEAD
        if is_requeued:
            await storage.jobs.requeue(only(job_id))
            await run(dead())
            assert await look() == [JobStatus.DEAD]
        assert await look() == await look() == []

    async def has_died(self, storage: Storage, seen: str, look: Look, run: Run) -> JobId:
        await enqueue_one(storage)
        if seen == "before the watch":
            job_id = await run(dead())
            assert await look() == []
            return job_id
        assert await look() == [JobStatus.PENDING]
        job_id = await run(dead())
        assert await look() == [JobStatus.DEAD]
        if seen == "by an earlier look":
            assert await look() == await look() == []
        return job_id


async def test_a_reader_that_is_too_slow_is_dropped_with_a_word(
    storage: Storage, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_WAITING", 2)
    for _ in range(3):
        await enqueue_one(storage)
    watch = client.watch(queue=QUEUE)
    with pytest.raises(SlowWatcher, match="more than 2 changes of queue default"):
        await next_of(watch)


async def test_an_outage_is_ridden_out(storage: Storage, lease: PodLease) -> None:
    faults = Faults()
    async with JobClient(faulty(storage, faults)) as client:
        job_id = await enqueue_one(storage)
        watch = client.watch(job_id)
        await next_of(watch)
        claimed = await claim_one(storage, lease)
        await next_of(watch)
        faults.down = True
        before = faults.calls["states"]
        await finish(storage, claimed, done())
        await wait_until(
            lambda: faults.calls["states"] > before + 1, description="looks fail for a while"
        )
        assert not watch.is_over
        faults.down = False
        [last] = await all_of(watch)
        assert last.status is JobStatus.DONE


async def test_a_thousand_watches_share_a_look(storage: Storage, lease: PodLease) -> None:
    faults = Faults()
    ids = [
        each.job_id
        for each in await JobClient(storage).enqueue_many([EnqueueRequest(KIND)] * 1_000)
    ]
    async with JobClient(faulty(storage, faults)) as client:
        watches = [client.watch(job_id) for job_id in ids]
        for watch in watches:
            await next_of(watch)
        looks = faults.calls["states"]
        assert looks <= 3
        await wait_until(lambda: faults.calls["states"] > looks, description="one look more")
        assert faults.calls["get"] == faults.calls["list"] == 0
        await storage.jobs.cancel(only(*ids[:500]))
        await storage.jobs.cancel(only(*ids[500:]))
        for watch in watches:
            [last] = await all_of(watch)
            assert last.status is JobStatus.CANCELLED
        assert faults.calls["states"] < 30


async def test_looks_end_with_the_last_watch(storage: Storage) -> None:
    faults = Faults()
    async with JobClient(faulty(storage, faults)) as client:
        job_id = await enqueue_one(storage)
        async for _ in client.watch(job_id):
            break
        gc.collect()
        await wait_until(lambda: client._watches._task is None, description="no look any more")


async def test_a_client_that_is_closed_ends_its_watches(storage: Storage) -> None:
    client = JobClient(storage)
    watch = client.watch(await enqueue_one(storage))
    await next_of(watch)
    await client.aclose()
    with pytest.raises(StorageError, match="closed"):
        await next_of(watch)
    with pytest.raises(StorageError, match="closed"):
        client.watch(new_job_id())


async def test_changes_of_pods_here_need_no_polling(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = HandlerRegistry()
    go_on = [asyncio.Event() for _ in range(2)]

    @handlers.job("steps")
    async def steps(ctx: JobContext) -> None:
        for number, event in enumerate(go_on):
            ctx.progress.set(number, 2)
            await event.wait()

    client = JobClient(storage, handlers)
    monkeypatch.setattr(watching, "LOOK_EVERY_S", NEVER)
    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(steps.request())).job_id
        watch = client.watch(job_id)
        for number in range(2):
            while (await next_of(watch)).progress != (state := await client.state(job_id)).progress:  # type: ignore[union-attr]
                pass
            del state
            go_on[number].set()
        assert (await all_of(watch))[-1].status is JobStatus.DONE
    await client.aclose()


_WORKER = """
import asyncio, sys
from forge_jobs import HandlerRegistry, JobContext, QueueRuntime, open_storage

handlers = HandlerRegistry()

@handlers.job("counts")
async def counts(ctx: JobContext) -> None:
    for number in range(3):
        read = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        while not read.done():
            # Again and again: this process may not know yet that somebody watches.
            ctx.progress.set(number + 1, 3)
            await asyncio.wait({read}, timeout=0.05)

async def main() -> None:
    async with await open_storage(sys.argv[1]) as storage:
        async with QueueRuntime(storage, handlers).with_queues(default=1).start():
            print("ready", flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_changes_of_another_process_need_no_polling(
    backend: str, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await url_of(backend, tmp_path)
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WORKER, url, stdin=pipe, stdout=pipe
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        with anyio.fail_after(60):
            assert await worker.stdout.readline() == b"ready\n"
            async with JobClient(storage) as client:
                job_id = (await client.enqueue(EnqueueRequest("counts"))).job_id
                watch = client.watch(job_id)
                for number in range(1, 4):
                    async for state in watch:
                        if state.progress is not None and state.progress.current == number:
                            break
                    monkeypatch.setattr(watching, "LOOK_EVERY_S", NEVER)
                    worker.stdin.write(b"\n")
                assert (await all_of(watch))[-1].status is JobStatus.DONE
    finally:
        worker.kill()
        await worker.wait()


async def test_nothing_is_sent_of_queues_that_nobody_watches(
    storage: Storage, lease: PodLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests of this process before may have watched the default queue of this store.
    queue, sent = f"q-{new_job_id()}", list[object]()
    monkeypatch.setattr(storage.jobs._changes, "_send", sent.append)  # type: ignore[attr-defined]
    storage.jobs.announce_changes([queue])
    assert sent == []
    async with JobClient(storage) as client:
        watch = client.watch(await enqueue_one(storage, queue=queue))
        await next_of(watch)
        await wait_until(lambda: sent, description="the watch is made known")
        sent.clear()
        storage.jobs.announce_changes(["other"])
        assert sent == []
        storage.jobs.announce_changes([queue])
        assert len(sent) == 1


async def test_the_blocking_client_watches(
    backend: str, storage: Storage, lease: PodLease, tmp_path: Path
) -> None:
    url = await url_of(backend, tmp_path)
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await tell(storage, claimed, 1)

    def follow() -> list[JobState]:
        with SyncJobClient(lambda: open_storage(url)) as client:
            found = client.state(job_id)
            assert found is not None
            assert client.log(job_id).lines == ()
            with pytest.raises(InvalidInput):
                client.watch()
            states = []
            for state in client.watch(job_id):
                states.append(state)
                if len(states) == 1:
                    client.cancel(job_id)
            return states

    following = asyncio.ensure_future(asyncio.to_thread(follow))

    async def is_asked() -> bool:
        return (await storage.jobs.get([job_id]))[job_id].cancel_requested

    await wait_until(is_asked, description="the first state was read")
    await finish(storage, claimed, done())
    states = await following
    assert [state.status for state in states] == [JobStatus.IN_PROGRESS, JobStatus.DONE]
