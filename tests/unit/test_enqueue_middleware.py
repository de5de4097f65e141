"""Middleware around enqueues: what it changes, sees and refuses, and that it loses nothing."""

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from pathlib import Path
from typing import Annotated, Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from forge_jobs import (
    EnqueueOutcome,
    EnqueueRequest,
    HandlerRegistry,
    InvalidInput,
    JobClient,
    JobFilter,
    Secret,
    Storage,
    SyncJobClient,
    Unavailable,
    Unique,
    open_storage,
)
from forge_jobs.errors import RegistrationError
from tests.support.waiting import wait_until
from tests.unit.test_client_enqueue import SpiedJobs

pytestmark = pytest.mark.anyio

Plain = Generator[EnqueueRequest | None, EnqueueOutcome, None]
Async = AsyncGenerator[EnqueueRequest | None, EnqueueOutcome]

notes: list[str] = []
threads: list[int] = []
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    notes.clear()
    threads.clear()


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("sqlite:///:memory:") as opened:
        opened.jobs = SpiedJobs(opened.jobs)
        yield opened


async def outer(request: EnqueueRequest) -> Async:
    notes.append(f"outer before {request.kind}")
    try:
        outcome = yield request.options(metadata={**request.metadata, "by": "outer"})
    except BaseException as error:
        notes.append(f"outer sees {type(error).__name__}")
        raise
    notes.append(f"outer after {'duplicate' if outcome.deduplicated else 'new'}")


def inner(request: EnqueueRequest) -> Plain:
    threads.append(threading.get_ident())
    notes.append(f"inner before {dict(request.metadata)}")
    try:
        outcome = yield request.options(trace={"traceparent": "00-1-2-01"})
    except BaseException as error:
        notes.append(f"inner sees {type(error).__name__}")
        raise
    notes.append(f"inner after {'duplicate' if outcome.deduplicated else 'new'}")


def a_registry(*middleware: Any, registry: tuple[Any, ...] = ()) -> HandlerRegistry:
    handlers = HandlerRegistry(enqueue_middleware=registry)

    @handlers.job("work", enqueue_middleware=middleware)
    async def work(n: int = 0) -> None: ...

    return handlers


def work_of(handlers: HandlerRegistry, n: int = 0) -> EnqueueRequest:
    handler = handlers.get("work")
    assert handler is not None
    return handler.request(n)


WITHIN = [
    "outer before work",
    "inner before {'by': 'outer'}",
    "inner after new",
    "outer after new",
]


class TestOrder:
    @pytest.mark.parametrize("how", ["handler", "kind", "no registry at hand"])
    async def test_the_registrys_is_outermost_and_both_change_the_request(
        self, storage: Storage, how: str
    ) -> None:
        handlers = a_registry(inner, registry=(outer,))
        request = EnqueueRequest("work") if how == "kind" else work_of(handlers)
        async with JobClient(storage, None if "no" in how else handlers) as client:
            outcome = await client.enqueue(request, queue="default")
            job = await client.get(outcome.job_id)
        assert notes == WITHIN
        assert job is not None
        assert (job.metadata, job.trace) == ({"by": "outer"}, '{"traceparent":"00-1-2-01"}')

    async def test_kinds_that_the_registry_does_not_know_have_the_registrys(
        self, storage: Storage
    ) -> None:
        handlers = a_registry(inner, registry=(outer,))
        async with JobClient(storage, handlers) as client:
            await client.enqueue(EnqueueRequest("elsewhere.other"), queue="default")
        assert notes == ["outer before elsewhere.other", "outer after new"]

    async def test_handlers_that_are_included_keep_their_own(self, storage: Storage) -> None:
        handlers = HandlerRegistry(enqueue_middleware=[outer])
        handlers.include(inside := a_registry(inner))
        async with JobClient(storage, handlers) as client:
            await client.enqueue(work_of(inside))
        assert notes == ["inner before {}", "inner after new"]

    @pytest.mark.parametrize("how", ["handler", "kind", "included"])
    async def test_a_handlers_own_is_found_where_the_registry_has_none(
        self, storage: Storage, how: str
    ) -> None:
        handlers = a_registry(inner)
        request = work_of(handlers) if how == "handler" else EnqueueRequest("work")
        if how == "included":
            own, handlers = handlers, HandlerRegistry()
            handlers.include(own)
        async with JobClient(storage, handlers) as client:
            await client.enqueue(request)
            await client.enqueue_many([request])
        assert notes == ["inner before {}", "inner after new"] * 2

    async def test_a_duplicate_is_seen_as_one(self, storage: Storage) -> None:
        handlers = a_registry(inner)
        async with JobClient(storage, handlers) as client:
            for _ in range(2):
                await client.enqueue(work_of(handlers), unique=Unique("k"))
        assert notes[1::2] == ["inner after new", "inner after duplicate"]

    async def test_a_bare_yield_leaves_the_request(self, storage: Storage) -> None:
        def looks(request: EnqueueRequest) -> Plain:
            outcome = yield None
            notes.append(outcome.job_id)

        handlers = a_registry(looks)
        async with JobClient(storage, handlers) as client:
            outcome = await client.enqueue(work_of(handlers))
        assert notes == [outcome.job_id]

    async def test_callable_objects_and_partials_work(self, storage: Storage) -> None:
        class Middleware:
            def __call__(self, request: EnqueueRequest) -> Plain:
                notes.append("object")
                yield request

        def named(name: str, request: EnqueueRequest) -> Plain:
            notes.append(name)
            yield request

        handlers = a_registry(Middleware(), functools.partial(named, "partial"))
        async with JobClient(storage, handlers) as client:
            await client.enqueue(work_of(handlers))
        assert notes == ["object", "partial"]


class TestMany:
    async def test_each_request_has_its_own_and_outcomes_keep_their_order(
        self, storage: Storage
    ) -> None:
        def numbered(request: EnqueueRequest) -> Plain:
            outcome = yield request.options(tags=(f"t{len(notes)}",))
            notes.append(outcome.job_id)

        handlers = a_registry(numbered)
        other = EnqueueRequest("elsewhere.other", queue="default")
        async with JobClient(storage, handlers) as client:
            outcomes = await client.enqueue_many([work_of(handlers), other, work_of(handlers)])
            jobs = [await client.get(each.job_id) for each in outcomes]
        assert [job.kind for job in jobs if job] == ["work", "elsewhere.other", "work"]
        assert notes == [outcomes[2].job_id, outcomes[0].job_id]
        spied: Any = storage.jobs
        assert len(spied.calls) == 1

    async def test_one_that_is_refused_keeps_all_from_being_stored(self, storage: Storage) -> None:
        def refuses_two(request: EnqueueRequest) -> Plain:
            if request.payload == '{"n":2}':
                raise PermissionError("not two")
            yield request

        handlers = a_registry(inner, refuses_two)
        async with JobClient(storage, handlers) as client:
            with pytest.raises(PermissionError, match="not two"):
                await client.enqueue_many([work_of(handlers, 1), work_of(handlers, 2)])
            assert (await client.list(JobFilter())).jobs == ()
        assert notes[2:] == ["inner sees PermissionError"] * 2

    async def test_of_steps_each_hears_whether_its_own_was_stored(self, storage: Storage) -> None:
        handlers = a_registry(inner)
        spied: Any = storage.jobs
        spied.enqueue_at_once = 2

        async with JobClient(storage, handlers, repeat_for=0) as client:
            enqueue = spied.enqueue

            async def fails_later(*args: Any, **options: Any) -> list[EnqueueOutcome]:
                spied.outages = len(spied.calls)
                outcomes: list[EnqueueOutcome] = await enqueue(*args, **options)
                return outcomes

            spied.enqueue = fails_later
            with pytest.raises(Unavailable):
                await client.enqueue_many([work_of(handlers) for _ in range(3)])
        assert notes[3:] == ["inner sees Unavailable", "inner after new", "inner after new"]


async def breaks_on_loop(request: EnqueueRequest) -> Async:
    yield request
    raise OSError("the metrics are away")


def breaks(request: EnqueueRequest) -> Plain:
    yield request
    raise OSError("the metrics are away")


def yields_twice(request: EnqueueRequest) -> Plain:
    yield request
    yield request


async def yields_twice_on_loop(request: EnqueueRequest) -> Async:
    yield request
    yield request


class TestErrors:
    @pytest.mark.parametrize("broken", [breaks, breaks_on_loop, yields_twice, yields_twice_on_loop])
    async def test_behind_the_enqueue_an_error_is_logged_and_the_outcome_stays(
        self, storage: Storage, broken: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        handlers = a_registry(outer, broken, inner)
        async with JobClient(storage, handlers) as client:
            outcome = await client.enqueue(work_of(handlers))
            assert await client.get(outcome.job_id) is not None
        assert notes == WITHIN
        assert f"the enqueue_middleware {broken.__name__} failed after the enqueue" in caplog.text

    async def test_an_error_of_the_store_reaches_the_caller_and_cannot_be_swallowed(
        self, storage: Storage
    ) -> None:
        def swallows(request: EnqueueRequest) -> Plain:
            try:
                yield request
            except Unavailable:
                notes.append("swallowed")

        handlers = a_registry(outer, swallows)
        spied: Any = storage.jobs
        spied.outages = 1
        async with JobClient(storage, handlers, repeat_for=0) as client:
            with pytest.raises(Unavailable, match="away"):
                await client.enqueue(work_of(handlers))
        assert notes == ["outer before work", "swallowed", "outer sees Unavailable"]

    async def test_a_wrong_value_that_it_sets_is_refused_by_name(self, storage: Storage) -> None:
        def spoils(request: EnqueueRequest) -> Plain:
            yield request.options(priority=1000)

        handlers = a_registry(inner, spoils)
        async with JobClient(storage, handlers) as client:
            with pytest.raises(InvalidInput, match="priority: is 1000"):
                await client.enqueue(work_of(handlers))
        assert notes[1:] == ["inner sees InvalidInput"]

    @pytest.mark.parametrize(
        ("yielded", "message"),
        [
            (7, "request: is an int, as the enqueue_middleware wrong has yielded it"),
            (EnqueueRequest("other"), "kind: was 'work', and the enqueue_middleware wrong has"),
            (None, "request: was not yielded by the enqueue_middleware wrong"),
        ],
    )
    async def test_what_is_yielded_must_be_a_request_of_that_kind(
        self, storage: Storage, yielded: Any, message: str
    ) -> None:
        def wrong(request: EnqueueRequest) -> Plain:
            if yielded is not None:
                yield yielded

        handlers = a_registry(inner, wrong)
        async with JobClient(storage, handlers) as client:
            with pytest.raises(InvalidInput, match=message):
                await client.enqueue(work_of(handlers))
            assert (await client.list(JobFilter())).jobs == ()
        assert notes[1:] == ["inner sees InvalidInput"]

    async def test_a_caller_that_is_cancelled_is_seen(self, storage: Storage) -> None:
        handlers = a_registry(outer, inner)
        spied: Any = storage.jobs
        spied.gate.clear()
        async with JobClient(storage, handlers) as client:
            task = asyncio.create_task(client.enqueue(work_of(handlers)))
            await wait_until(lambda: spied.calls or task.done(), description="the store is asked")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            spied.gate.set()
        assert notes[2:] == ["inner sees CancelledError", "outer sees CancelledError"]

    async def test_the_log_shows_no_exception_of_a_payload_with_secrets(
        self, storage: Storage, caplog: pytest.LogCaptureFixture
    ) -> None:
        def leaks(request: EnqueueRequest) -> Plain:
            yield request
            raise ValueError(str(request.payload))

        handlers = HandlerRegistry(enqueue_middleware=[leaks])

        @handlers.job("login")
        async def login(password: Annotated[str, Secret]) -> None: ...

        with caplog.at_level(logging.DEBUG):
            async with JobClient(storage, handlers) as client:
                await client.enqueue(EnqueueRequest("login", {"password": "hunter2"}))
                await client.enqueue(login.request("hunter2"))
        assert caplog.text.count("the enqueue_middleware leaks failed after the enqueue") == 2
        assert "hunter2" not in caplog.text


class TestConnections:
    async def test_within_the_transaction_of_the_caller(self, tmp_path: Path) -> None:
        handlers = a_registry(inner, registry=(outer,))
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
        async with (
            await open_storage(f"sqlite:///{tmp_path}/app.db") as storage,
            JobClient(storage, handlers) as client,
            engine.connect() as connection,
        ):
            lost = await client.enqueue(work_of(handlers), connection=connection)
            await connection.rollback()
            [kept] = await client.enqueue_many([work_of(handlers)], connection=connection)
            await connection.commit()
            assert await client.get(lost.job_id) is None
            job = await client.get(kept.job_id)
        await engine.dispose()
        assert job is not None
        assert (job.metadata, notes) == ({"by": "outer"}, WITHIN * 2)


async def in_one_context(request: EnqueueRequest) -> Async:
    notes.append(f"begins with {variable.get()}")
    token = variable.set("async")
    yield request
    variable.reset(token)
    notes.append("ends in the same context")


@pytest.mark.parametrize("in_transaction", [False, True])
def test_the_blocking_client_runs_plain_middleware_in_the_calling_thread(
    tmp_path: Path, in_transaction: bool
) -> None:
    handlers = a_registry(in_one_context, inner, registry=(outer,))
    url = f"sqlite:///{tmp_path}/app.db"
    variable.set("the caller's")
    engine = create_engine(url)
    with SyncJobClient(lambda: open_storage(url), handlers) as client:
        if in_transaction:
            with engine.begin() as connection:
                one = client.enqueue(work_of(handlers), connection=connection)
                [two] = client.enqueue_many([work_of(handlers)], connection=connection)
        else:
            one = client.enqueue(work_of(handlers))
            [two] = client.enqueue_many([work_of(handlers)])
        for outcome in (one, two):
            job = client.get(outcome.job_id)
            assert job is not None
            assert job.metadata == {"by": "outer"}
    engine.dispose()
    contexts = ["begins with the caller's", "ends in the same context"]
    assert [each for each in notes if each not in contexts] == WITHIN * 2
    assert [each for each in notes if each in contexts] == contexts * 2
    assert set(threads) == {threading.get_ident()}


def test_an_error_of_the_blocking_client_is_seen(tmp_path: Path) -> None:
    handlers = a_registry(inner, registry=(outer,))
    client = SyncJobClient(lambda: open_storage(f"sqlite:///{tmp_path}/app.db"), handlers)
    with client, pytest.raises(InvalidInput, match="priority"):
        client.enqueue(work_of(handlers), priority=1000)
    assert notes[2:] == ["inner sees InvalidInput", "outer sees InvalidInput"]


@pytest.mark.parametrize(
    ("middleware", "message"),
    [
        ([7], "enqueue_middleware has an int, which cannot be called"),
        (inner, "give a list of functions"),
        (7, "give a list of functions"),
        ([lambda request: request], "does not yield; write a function with"),
        ([_no_notes], "does not yield"),
        ([in_one_context, lambda: (yield)], "cannot be called with the request alone"),
    ],
)
def test_wrong_middleware_is_refused_at_registration(middleware: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        HandlerRegistry(enqueue_middleware=middleware)
    with pytest.raises(RegistrationError, match=f"work: .*{message}"):
        HandlerRegistry().job("work", enqueue_middleware=middleware)
