"""Values that all jobs of a pod share, and the lifespans of registries."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import pytest

from forge_jobs import (
    Depends,
    EnqueueRequest,
    HandlerRegistry,
    JobClient,
    JobContext,
    JobFilter,
    LifespanFailed,
    Shared,
)
from forge_jobs.cli.failures import FAILED, describe
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Pool:
    """A value that says when it is used after its end."""

    def __init__(self, notes: list[str], name: str = "pool") -> None:
        self._notes = notes
        self._name = name
        self.is_closed = False
        notes.append(f"{name} opens")

    def use(self) -> str:
        assert not self.is_closed, "used after its end"
        return self._name

    def close(self) -> None:
        self.is_closed = True
        self._notes.append(f"{self._name} closes")


def a_pool(notes: list[str], *, is_async: bool) -> Callable[[], Any]:
    """Return a factory of a pool, slow enough that many jobs ask for the pool at once."""

    async def pool() -> AsyncIterator[Pool]:
        await anyio.lowlevel.checkpoint()
        made = Pool(notes)
        yield made
        made.close()

    def pool_in_thread() -> Iterator[Pool]:
        made = Pool(notes)
        yield made
        made.close()

    return pool if is_async else pool_in_thread


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_thousand_jobs_at_once_share_one_value_until_the_last_has_ended(
    storage: Storage, is_async: bool
) -> None:
    notes: list[str] = []
    handlers = HandlerRegistry()
    pool = a_pool(notes, is_async=is_async)
    all_run = anyio.Event()
    running: set[int] = set()

    @handlers.job("uses")
    async def uses(n: int, pool: Pool = Shared(pool)) -> None:
        running.add(n)
        if len(running) == 1_000:
            all_run.set()
        await all_run.wait()
        assert pool.use()

    runtime = a_runtime(storage, handlers, 1_000)
    async with runtime.start() as handle:
        await handle.enqueue_many([uses.request(n) for n in range(1_000)])
        await all_run.wait()
        assert notes == ["pool opens"]
    assert notes == ["pool opens", "pool closes"]
    counts = (await storage.jobs.counts(["default"]))["default"].by_status
    assert counts.get(JobStatus.DONE) == 1_000


async def test_a_value_is_closed_after_the_last_handler_and_its_clean_up(storage: Storage) -> None:
    notes: list[str] = []
    handlers = HandlerRegistry()
    pool = a_pool(notes, is_async=True)
    began = anyio.Event()

    async def connection(pool: Pool = Shared(pool)) -> AsyncIterator[Pool]:
        try:
            yield pool
        finally:
            await anyio.sleep(0.05)
            notes.append(f"gives back to the {pool.use()}")

    @handlers.job("waits")
    async def waits(connection: Pool = Depends(connection)) -> None:
        began.set()
        await anyio.sleep_forever()

    handle = await a_runtime(storage, handlers).start()
    await handle.enqueue(waits.request())
    await began.wait()
    report = await handle.stop(timeout=1)
    assert len(report.interrupted) == 1
    assert notes == ["pool opens", "gives back to the pool", "pool closes"]


async def test_values_are_closed_in_the_reverse_order_of_their_making(storage: Storage) -> None:
    notes: list[str] = []
    handlers = HandlerRegistry()

    def named(name: str, needs: Any) -> Callable[..., Any]:
        async def factory(other: Any = needs) -> AsyncIterator[Pool]:
            made = Pool(notes, name)
            yield made
            made.close()

        return factory

    low = named("low", None)
    middle = named("middle", Shared(low))
    high = named("high", Shared(middle))

    @handlers.job("uses")
    async def uses(high: Pool = Shared(high), low: Pool = Shared(low)) -> str:
        return high.use() + low.use()

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(uses.request())).job_id
        assert await handle.result(job_id, timeout=60) == "highlow"
    assert notes == [
        *("low opens", "middle opens", "high opens"),
        *("high closes", "middle closes", "low closes"),
    ]


async def test_a_value_that_could_not_be_made_is_made_by_the_next_job(storage: Storage) -> None:
    handlers = HandlerRegistry()
    calls: list[int] = []

    async def pool() -> str:
        calls.append(len(calls))
        if len(calls) == 1:
            raise ConnectionError("the database starts")
        return "a pool"

    @handlers.job("uses", max_attempts=1)
    async def uses(pool: str = Shared(pool)) -> str:
        return pool

    async with a_runtime(storage, handlers).start() as handle:
        failed = await ended(storage, (await handle.enqueue(uses.request())).job_id)
        for _ in range(2):
            job_id = (await handle.enqueue(uses.request())).job_id
            assert await handle.result(job_id, timeout=60) == "a pool"
    assert failed.errors[0].type == "ConnectionError"
    assert calls == [0, 1]


async def test_a_job_that_is_cancelled_while_a_value_is_made_does_not_stop_the_making(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    began, go_on = anyio.Event(), anyio.Event()
    calls: list[str] = []

    async def pool() -> str:
        calls.append("pool")
        began.set()
        await go_on.wait()
        return "a pool"

    @handlers.job("uses")
    async def uses(n: int, pool: str = Shared(pool)) -> str:
        return f"{pool} for {n}"

    async with a_runtime(storage, handlers, 2).start() as handle:
        first = (await handle.enqueue(uses.request(1))).job_id
        await began.wait()
        second = (await handle.enqueue(uses.request(2))).job_id
        await job_when(storage, second, JobStatus.IN_PROGRESS)
        await handle.cancel(first)
        assert (await ended(storage, first)).status is JobStatus.CANCELLED
        go_on.set()
        assert await handle.result(second, timeout=60) == "a pool for 2"
    assert calls == ["pool"]


async def test_a_making_that_hangs_is_given_up_with_the_stop(storage: Storage) -> None:
    handlers = HandlerRegistry()
    began = anyio.Event()
    notes: list[str] = []

    async def pool() -> AsyncIterator[str]:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            notes.append("given up")
        yield "never"

    @handlers.job("uses")
    async def uses(pool: str = Shared(pool)) -> None: ...

    handle = await a_runtime(storage, handlers).start()
    job_id = (await handle.enqueue(uses.request())).job_id
    await began.wait()
    assert (await handle.stop(timeout=0)).is_clean
    assert notes == ["given up"]
    job = (await storage.jobs.get([job_id]))[job_id]
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_clean_up_that_hangs_does_not_hold_up_the_stop_or_the_other_clean_ups(
    storage: Storage, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str] = []
    handlers = HandlerRegistry()
    pool = a_pool(notes, is_async=True)
    hangs = threading.Event()

    async def hanging(pool: Pool = Shared(pool)) -> AsyncIterator[str]:
        yield "a client"
        while not hangs.is_set():
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                notes.append("cancelled")

    def hanging_in_thread(pool: Pool = Shared(pool)) -> Iterator[str]:
        yield "a client"
        hangs.wait()

    @handlers.job("uses")
    async def uses(client: Any = Shared(hanging if is_async else hanging_in_thread)) -> str:
        return str(client)

    handle = await a_runtime(storage, handlers).start()
    values = handle._pod.values
    job_id = (await handle.enqueue(uses.request())).job_id
    assert await handle.result(job_id, timeout=60) == "a client"
    report = await handle.stop(timeout=0.2)
    assert report.is_clean
    assert notes[:2] == ["pool opens", "pool closes"]
    assert "has not ended in the time of the stop" in caplog.text
    assert await storage.procs.pods() == []
    if is_async:
        assert values.stuck == ("hanging",)
    hangs.set()
    for holder in values._made:
        holder.task.cancel()
        await asyncio.wait([holder.task])


async def test_a_clean_up_that_raises_is_logged_and_the_others_go_on(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str] = []
    handlers = HandlerRegistry()
    pool = a_pool(notes, is_async=True)

    async def breaks(pool: Pool = Shared(pool)) -> AsyncIterator[str]:
        yield "a client"
        raise OSError("no route")

    @handlers.job("uses")
    async def uses(client: str = Shared(breaks)) -> str:
        return client

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(uses.request())).job_id
        await handle.result(job_id, timeout=60)
    job = await ended(storage, job_id)
    assert (job.status, job.errors) == (JobStatus.DONE, ())
    assert notes == ["pool opens", "pool closes"]
    assert "the clean-up of breaks failed: OSError: no route" in caplog.text


async def test_a_program_that_cancels_all_its_tasks_still_has_its_values_closed_in_order(
    storage: Storage,
) -> None:
    notes: list[str] = []
    handlers = HandlerRegistry()
    pool = a_pool(notes, is_async=True)
    began = anyio.Event()

    @handlers.job("waits")
    async def waits(pool: Pool = Shared(pool)) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            notes.append(f"handler leaves the {pool.use()}")

    before = asyncio.all_tasks()
    handle = await a_runtime(storage, handlers).start()
    await handle.enqueue(waits.request())
    await began.wait()
    # The task of the pool first: a pool that is closed then is closed before the handler leaves.
    for task in sorted(
        asyncio.all_tasks() - before, key=lambda each: "pool" not in each.get_name()
    ):
        task.cancel()
    await wait_until(lambda: "pool closes" in notes, description="the pool is closed")
    assert notes == ["pool opens", "handler leaves the pool", "pool closes"]
    await handle.stop()


class TestLifespans:
    async def test_it_is_around_all_jobs_and_what_it_yields_is_the_state(
        self, storage: Storage
    ) -> None:
        notes: list[str] = []
        pool = a_pool(notes, is_async=True)

        @asynccontextmanager
        async def lifespan(
            client: JobClient, pool: Annotated[Pool, Shared(pool)]
        ) -> AsyncIterator[dict[str, Any]]:
            notes.append("begins")
            yield {"pool": pool}
            notes.append("ends")
            await client.enqueue(EnqueueRequest("later"), queue="other")

        handlers = HandlerRegistry(lifespan=lifespan)

        @handlers.job("uses")
        async def uses(ctx: JobContext, pool: Pool = Shared(pool)) -> bool:
            notes.append("job")
            return ctx.state["pool"] is pool

        async with a_runtime(storage, handlers).start() as handle:
            assert notes == ["pool opens", "begins"]
            job_id = (await handle.enqueue(uses.request())).job_id
            assert await handle.result(job_id, timeout=60) is True
        assert notes == ["pool opens", "begins", "job", "ends", "pool closes"]
        async with JobClient(storage) as client:
            assert len((await client.list(JobFilter(kinds=("later",)))).jobs) == 1

    async def test_one_that_raises_fails_the_start_and_leaves_nothing(
        self, storage: Storage
    ) -> None:
        notes: list[str] = []

        async def first() -> AsyncIterator[None]:
            notes.append("first")
            yield
            notes.append("first ends")

        async def second() -> AsyncIterator[None]:
            raise ConnectionError("no route to the mail server")
            yield

        handlers = HandlerRegistry(lifespan=first)
        handlers.include(HandlerRegistry(lifespan=second))

        with pytest.raises(LifespanFailed) as failed:
            await a_runtime(storage, handlers).start()

        assert str(failed.value) == (
            "the lifespan second failed, so the worker does not start: ConnectionError: no route "
            "to the mail server"
        )
        assert isinstance(failed.value.__cause__, ConnectionError)
        assert describe(failed.value) == (str(failed.value), FAILED)
        assert notes == ["first", "first ends"]
        assert await storage.procs.pods() == []

    async def test_a_registry_takes_the_lifespans_of_those_it_includes_once(
        self, storage: Storage
    ) -> None:
        notes: list[str] = []

        def named(name: str) -> Any:
            async def lifespan() -> AsyncIterator[dict[str, str]]:
                notes.append(name)
                yield {name: name}
                notes.append(f"{name} ends")

            return lifespan

        mail, shop = named("mail"), named("shop")
        handlers = HandlerRegistry(lifespan=shop)
        for _ in range(2):
            handlers.include(HandlerRegistry(lifespan=mail))

        @handlers.job("tells")
        async def tells(ctx: JobContext) -> dict[str, Any]:
            return dict(ctx.state)

        async with a_runtime(storage, handlers).start() as handle:
            job_id = (await handle.enqueue(tells.request())).job_id
            said = await handle.result(job_id, timeout=60)
        assert said == {"shop": "shop", "mail": "mail"}
        assert notes == ["shop", "mail", "mail ends", "shop ends"]

    @pytest.mark.parametrize(
        ("yields", "says"),
        [
            (7, "TypeError: it yields an int; yield a mapping for ctx.state, or nothing"),
            ({"a": 2}, "ValueError: another lifespan has yielded 'a' already"),
        ],
    )
    async def test_a_state_that_is_none_is_refused(
        self, storage: Storage, yields: Any, says: str
    ) -> None:
        async def first() -> AsyncIterator[dict[str, int]]:
            yield {"a": 1}

        async def second() -> AsyncIterator[Any]:
            yield yields

        handlers = HandlerRegistry(lifespan=first)
        handlers.include(HandlerRegistry(lifespan=second))
        with pytest.raises(LifespanFailed, match=says):
            await a_runtime(storage, handlers).start()

    async def test_a_start_that_is_cancelled_leaves_what_was_entered(
        self, storage: Storage
    ) -> None:
        notes: list[str] = []
        began = anyio.Event()

        async def lifespan() -> AsyncIterator[None]:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                notes.append("given up")
            yield

        handlers = HandlerRegistry(lifespan=lifespan)
        start = asyncio.ensure_future(a_runtime(storage, handlers).start().open())
        await began.wait()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert notes == ["given up"]
        assert await storage.procs.pods() == []

    async def test_one_that_hangs_at_the_end_is_given_the_grace_and_no_more(
        self, storage: Storage, caplog: pytest.LogCaptureFixture
    ) -> None:
        notes: list[str] = []

        async def lifespan() -> AsyncIterator[None]:
            yield
            try:
                await anyio.sleep_forever()
            finally:
                notes.append("cancelled")

        handlers = HandlerRegistry(lifespan=lifespan)
        settings = quick_settings(grace=seconds(0.2))
        async with a_runtime(storage, handlers, settings=settings).start():
            pass
        assert notes == ["cancelled"]
        assert "the clean-up of lifespan has not ended in the time of the stop" in caplog.text
        assert await storage.procs.pods() == []
