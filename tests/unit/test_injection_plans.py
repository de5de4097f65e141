"""Dependencies are resolved when a handler is registered: wrong ones fail there, in words."""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

import fastapi
import pytest

from forge_jobs import (
    Depends,
    HandlerRegistry,
    Injected,
    InvalidInput,
    JobClient,
    JobContext,
    RegistrationError,
    Shared,
    UndecodablePayload,
)
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.injection.factories import Factory
from forge_jobs.handlers.schema import manifest


class Database:
    """No JSON type."""


async def database() -> AsyncIterator[Database]:
    yield Database()


def name() -> str:
    return "name"


Db = Annotated[Database, Depends(database)]


async def charge(ctx: JobContext, order: int, db: Db = Injected, note: str = "") -> str:
    return f"{order}{note} by {type(db).__name__}"


class TestPayload:
    def test_injected_parameters_are_no_part_of_the_schema(self) -> None:
        handlers = HandlerRegistry()
        handlers.register(charge, "charge")

        [entry] = manifest(handlers)

        assert set(entry.payload_schema["properties"]) == {"order", "note"}
        assert entry.payload_schema["required"] == ["order"]

    def test_a_request_cannot_give_them(self) -> None:
        handler = Handler[..., Any](charge, "charge")

        with pytest.raises(InvalidInput, match="db"):
            handler.request(1, db=Database())
        with pytest.raises(InvalidInput, match=r"charge\.db: is not a parameter"):
            handler.check_payload('{"order": 1, "db": "mine"}')
        with pytest.raises(UndecodablePayload, match=r"charge\.db"):
            handler.decode('{"order": 1, "db": "mine"}')

    async def _call(self, *args: Any, **kwargs: Any) -> Any:
        return await Handler[..., Any](charge, "charge")(*args, **kwargs)

    def test_a_direct_call_takes_them_as_they_come(self) -> None:
        assert asyncio.run(self._call(None, 1, db=7, note="!")) == "1! by int"

    @pytest.mark.parametrize("default", [Injected, Depends(database), Shared(database)])
    def test_a_direct_call_that_forgets_one_is_told_so(self, default: Any) -> None:
        with pytest.raises(AttributeError, match="give the argument by name"):
            default.execute("SELECT 1")

    def test_a_handler_without_any_runs_as_it_is(self) -> None:
        async def plain(ctx: JobContext, order: int) -> None: ...

        handler = Handler[..., Any](plain, "plain")

        assert handler.run is None
        assert handler.signature.injection is None
        assert not handler.needs_thread


def refused(function: Callable[..., Any]) -> str:
    """Return the error of registering ``function``."""
    with pytest.raises(RegistrationError) as refusal:
        HandlerRegistry().register(function, "job")
    return str(refusal.value)


class TestRefused:
    def test_a_parameter_that_is_neither_payload_nor_injected(self) -> None:
        async def pay(order: int, db: Database) -> None: ...

        said = refused(pay)

        assert said.startswith("pay: db cannot be read from JSON")
        assert "Annotated[Database, Depends(...)]" in said

    def test_a_factory_whose_parameter_nothing_makes(self) -> None:
        def session(url: str) -> Database:
            return Database()

        async def pay(order: int, note: str, db: Annotated[Database, Depends(session)]) -> None: ...

        assert refused(pay) == (
            "pay: db needs session: url has no default, and nothing says what makes it; mark it "
            "with Depends(...) or Shared(...), annotate it with one of JobContext, JobClient, "
            "SyncJobClient, Logger, LoggerAdapter, JobProgress, DeadLetter, name an argument that "
            "the job brings (those of pay are order, note), or give it a default"
        )

    def test_factories_that_need_each_other(self) -> None:
        def one(two: Any) -> int:
            return 1

        def two(one: Annotated[int, Depends(one)]) -> int:
            return 2

        one.__annotations__["two"] = Annotated[int, Depends(two)]

        async def pay(number: Annotated[int, Depends(one)]) -> None: ...

        assert refused(pay) == (
            "pay: number needs one: two needs two: one needs one, which needs itself; give one of "
            "them what it needs in another way"
        )

    def test_shared_factories_that_need_each_other(self) -> None:
        def one(two: Any) -> int:
            return 1

        def two(one: Annotated[int, Shared(one)]) -> int:
            return 2

        one.__annotations__["two"] = Annotated[int, Shared(two)]

        async def pay(number: Annotated[int, Shared(one)]) -> None: ...

        assert "which needs itself" in refused(pay)

    def test_a_value_of_the_pod_that_needs_one_of_a_job(self) -> None:
        async def pool(db: Db) -> None: ...

        async def other(ctx: JobContext) -> None: ...

        async def pay(db: Annotated[Database, Shared(pool)]) -> None: ...

        async def bill(db: Annotated[Database, Shared(other)]) -> None: ...

        assert "lives as long as one job" in refused(pay)
        assert "write Shared(database)" in refused(pay)
        assert "ctx is a value of one job" in refused(bill)

    def test_a_value_of_the_pod_that_needs_an_argument_of_a_job(self) -> None:
        def pool(tenant: str) -> None: ...

        async def pay(tenant: str, db: None = Shared(pool)) -> None: ...

        assert "tenant is a value of one job, but what needs it lives as long" in refused(pay)

    def test_an_argument_of_the_job_that_is_of_another_type(self) -> None:
        def session(tenant: int) -> None: ...

        async def pay(tenant: str, db: None = Depends(session)) -> None: ...

        async def bill(tenant: int | None, db: None = Depends(session)) -> None: ...

        assert refused(pay) == (
            "pay: db needs session: tenant is annotated int, but the argument tenant that the job "
            "brings is str; annotate both the same, or rename one of them"
        )
        assert "brings is int | None" in refused(bill)

    def test_another_injected_parameter_is_no_argument_of_the_job(self) -> None:
        def audit(db: Database) -> None: ...

        async def pay(db: Db, log: None = Depends(audit)) -> None: ...

        assert "audit: db has no default, and nothing says what makes it" in refused(pay)

    def test_a_parameter_that_is_marked_twice(self) -> None:
        async def pay(db: Annotated[Database, Depends(database)] = Depends(name)) -> None: ...

        said = refused(pay)

        assert said.startswith("pay: db is marked twice (Depends(name) and Depends(database))")

    def test_a_marker_that_is_not_called(self) -> None:
        async def pay(db: Annotated[Database, Depends]) -> None: ...

        assert "Depends is not called; write Depends(factory)" in refused(pay)

    def test_the_default_injected_without_a_marker(self) -> None:
        def session(number: int = Injected) -> None: ...

        async def pay(number: int = Injected) -> None: ...

        async def bill(number: None = Depends(session)) -> None: ...

        assert "pay: number has the default Injected" in refused(pay)
        assert "session: number has the default Injected" in refused(bill)

    def test_a_marker_without_a_factory_beside_no_class(self) -> None:
        async def pay(number: Any = Depends()) -> None: ...

        assert "the annotation is no class" in refused(pay)

    def test_a_factory_with_a_parameter_without_a_name(self) -> None:
        def by_place(number: int, /) -> int:
            return number

        async def pay(number: Annotated[int, Depends(by_place)]) -> None: ...

        assert "positional-only parameter number" in refused(pay)

    def test_an_annotation_that_is_not_there_at_run_time(self) -> None:
        def session(url: "Missing") -> Database:  # type: ignore[name-defined]  # noqa: F821
            return Database()

        async def pay(db: Annotated[Database, Depends(session)]) -> None: ...

        assert refused(pay).startswith("pay: db needs session: the annotation of url cannot be")

    @pytest.mark.parametrize("marker", [Depends, Shared])
    def test_a_factory_that_was_called_by_mistake(self, marker: Callable[[Any], Any]) -> None:
        with pytest.raises(RegistrationError, match="give the function itself"):
            marker(name())

    def test_a_lifespan_that_does_not_yield(self) -> None:
        def opens() -> dict[str, int]:
            return {}

        with pytest.raises(RegistrationError, match="lifespan: opens does not yield"):
            HandlerRegistry(lifespan=opens)

    def test_a_lifespan_that_needs_what_no_worker_has(self) -> None:
        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            yield

        with pytest.raises(RegistrationError, match="lifespan needs lifespan: app has no default"):
            HandlerRegistry(lifespan=lifespan)

    def test_a_lifespan_that_was_called_by_mistake(self) -> None:
        with pytest.raises(RegistrationError, match="lifespan is a str"):
            HandlerRegistry(lifespan="lifespan")  # type: ignore[arg-type]


def _registered(function: Callable[..., Any]) -> HandlerRegistry:
    handlers = HandlerRegistry()
    handlers.register(function, "job")
    return handlers


def steps_of(function: Callable[..., Any]) -> list[str]:
    plan = Handler[..., Any](function, "job").signature.injection
    assert plan is not None
    return [step.name.rpartition(".")[2] for step in plan.steps]


class TestPlans:
    def test_each_factory_is_one_step_after_what_it_needs(self) -> None:
        def low(client: JobClient) -> int:
            return 1

        def left(low: int = Depends(low), log: logging.Logger | None = None) -> int:
            return low

        def right(low: int = Depends(low), other: int = 4) -> int:
            return low

        async def pay(a: int = Depends(left), b: int = Depends(right)) -> None: ...

        assert steps_of(pay) == ["JobClient", "low", "Logger", "left", "right"]

    def test_a_factory_takes_arguments_of_the_job_by_name(self) -> None:
        def number(order: float, note: Any, unknown: int = 7) -> int:
            return 1

        def text(order: int | None, ctx: JobContext) -> str:
            return ""

        async def pay(
            order: int, note: str = "", a: int = Depends(number), b: str = Depends(text)
        ) -> None: ...

        assert steps_of(pay) == ["order", "note", "number", "JobContext", "text"]
        [entry] = manifest(_registered(pay))
        assert set(entry.payload_schema["properties"]) == {"order", "note"}

    def test_without_the_cache_each_parameter_has_a_step(self) -> None:
        async def pay(
            a: str = Depends(name),
            b: str = Depends(name, use_cache=False),
            c: str = Depends(name),
            d: str = Depends(name, use_cache=False),
        ) -> None: ...

        assert steps_of(pay) == ["name", "name", "name"]

    def test_a_marker_without_a_factory_takes_the_class(self) -> None:
        async def pay(db: Annotated[Database, Depends()]) -> None: ...

        assert steps_of(pay) == ["Database"]

    def test_an_alias_of_a_fastapi_application_works(self) -> None:
        async def pay(db: Annotated[Database, fastapi.Depends(database)]) -> None: ...

        assert steps_of(pay) == ["database"]


class Enters:
    def __enter__(self) -> "Enters":
        return self

    def __exit__(self, *_: object) -> None: ...


class EntersAsync:
    async def __aenter__(self) -> "EntersAsync":
        return self

    async def __aexit__(self, *_: object) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


class CallsAsync:
    async def __call__(self) -> int:
        return 1


class CallsGenerator:
    def __call__(self) -> Iterator[int]:
        yield 1


def gives_a_manager() -> AbstractAsyncContextManager[Database]:
    return asynccontextmanager(database)()


async def awaits_a_manager() -> AbstractAsyncContextManager[Database]:
    return gives_a_manager()


@pytest.mark.parametrize(
    ("function", "is_async", "is_entered"),
    [
        (name, False, False),
        (dict, False, False),
        (lambda: 1, False, False),
        (Database, False, False),
        (coroutine, True, False),
        (CallsAsync(), True, False),
        (functools.partial(coroutine), True, False),
        (generator, False, True),
        (CallsGenerator(), False, True),
        (functools.partial(generator), False, True),
        (database, True, True),
        (asynccontextmanager(database), True, True),
        (gives_a_manager, True, True),
        (awaits_a_manager, True, True),
        (Enters, False, True),
        (EntersAsync, True, True),
        (functools.partial(EntersAsync), True, True),
        # A lock that is entered is a lock that is held.
        (asyncio.Lock, True, False),
        (asyncio.Semaphore, True, False),
    ],
)
def test_the_shape_of_a_factory_says_where_it_works_and_whether_it_is_left(
    function: Callable[..., Any], is_async: bool, is_entered: bool
) -> None:
    hints = getattr(function, "__annotations__", {})

    factory = Factory(function, hints.get("return"))

    assert (factory.is_async, factory.is_entered) == (is_async, is_entered)
