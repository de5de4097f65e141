"""Mistakes of newcomers: each error names the mistake and what to write instead."""

import warnings
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from forge_jobs import (
    HandlerRegistry,
    JobClient,
    JobContext,
    QueueRuntime,
    QueueSettings,
    RateLimit,
    Storage,
    SyncJobClient,
    open_storage,
    prefix_router,
)
from forge_jobs.config import Deployment, RuntimeSettings
from forge_jobs.errors import ConfigError, InvalidInput, RegistrationError
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import Cause, JobStatus

pytestmark = pytest.mark.anyio

handlers = HandlerRegistry()


@handlers.job("gh.sync_issue", queue="gh")
async def sync_issue(number: int) -> int:
    return number


@handlers.job("mail.send", queue="mail")
def send_mail(to: str) -> str:
    return to


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("sqlite:///:memory:") as opened:
        yield opened


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sync_issue,
            "request: is the handler sync_issue itself; give sync_issue.request(...), with the "
            "arguments of the job",
        ),
        (
            lambda: sync_issue(1),
            "request: is what a call of sync_issue(...) returned; give sync_issue.request(...), "
            "with the arguments of the job",
        ),
        (
            lambda: send_mail("me"),
            'request: is a str; give EnqueueRequest("kind", {...}), with the arguments of the job',
        ),
        (
            lambda: sync_issue.request,
            "request: is the method request itself; give what it returns, as handler.request(...), "
            "with the arguments of the job",
        ),
    ],
)
async def test_what_is_enqueued_is_a_request(
    storage: Storage, make: Callable[[], Any], message: str
) -> None:
    with warnings.catch_warnings():
        # A coroutine that is never awaited would warn beside the error.
        warnings.simplefilter("error")
        async with JobClient(storage, handlers) as client:
            for call in (
                client.enqueue,
                lambda given: client.enqueue(given, queue="q"),
                lambda given: client.enqueue_many([given]),
            ):
                with pytest.raises(InvalidInput) as caught:
                    await call(make())
                assert str(caught.value) == message
            with pytest.raises(InvalidInput) as caught:
                client.prepare(make())
            assert str(caught.value) == message


async def test_enqueue_many_takes_a_list(storage: Storage) -> None:
    async with JobClient(storage) as client:
        for given in (EnqueueRequest("a"), "a", 5, sync_issue):
            with pytest.raises(InvalidInput, match=r"requests: is an? .*; give a list of requests"):
                await client.enqueue_many(cast("Any", given))


@pytest.mark.parametrize(
    "make", [JobClient, lambda storage: QueueRuntime(storage, handlers)], ids=["client", "runtime"]
)
def test_a_storage_is_opened_and_awaited(make: Callable[[Any], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInput) as caught:
            make(open_storage("sqlite:///:memory:"))
    expected = "storage: is a coroutine that was not awaited; write `await open_storage(url)`"
    assert str(caught.value) == expected
    for given in ("sqlite:///jobs.db", handlers):
        with pytest.raises(InvalidInput, match="give what `await open_storage"):
            make(given)


def test_the_blocking_client_takes_a_function_that_opens() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (open_storage("sqlite:///:memory:"), "sqlite:///jobs.db"):
            with pytest.raises(InvalidInput, match=r"open_storage: is a .* as lambda: open_"):
                SyncJobClient(cast("Any", given))


async def test_handlers_are_a_registry(storage: Storage) -> None:
    for make in (JobClient, QueueRuntime):
        for given in ([sync_issue], sync_issue):
            with pytest.raises(InvalidInput, match=r"handlers: is a .*; give the HandlerRegistry"):
                make(storage, given)  # type: ignore[arg-type]


async def test_handlers_are_included_from_a_registry() -> None:
    with pytest.raises(InvalidInput, match=r"handlers: is a list; give the HandlerRegistry"):
        HandlerRegistry().include(cast("Any", [sync_issue]))


@pytest.mark.parametrize("url", [None, Path("jobs.db")])
async def test_a_url_is_a_text(url: Any) -> None:
    expected = f"url: is a {type(url).__name__}; give a text, for example sqlite:///jobs.db"
    with pytest.raises(InvalidInput) as caught:
        await open_storage(url)
    assert str(caught.value) == expected


async def test_queues_are_named_one_by_one(storage: Storage) -> None:
    with pytest.raises(InvalidInput, match=r"queue: is a list; give names one by one"):
        QueueRuntime(storage, handlers).with_queues(cast("Any", ["gh", "mail"]))
    with pytest.raises(InvalidInput, match=r"pattern: is a dict; give globs one by one"):
        QueueRuntime(storage, handlers).with_patterns(cast("Any", {"tenant-*": 4}))


async def test_a_router_is_a_function(storage: Storage) -> None:
    for make in (JobClient, QueueRuntime):
        with pytest.raises(InvalidInput, match=r"router: is a str; give a function of the kind"):
            make(storage, handlers, router=cast("Any", "prefix"))


async def test_settings_are_settings_of_durations(storage: Storage) -> None:
    with pytest.raises(InvalidInput, match=r"settings: is a dict; give RuntimeSettings\(\.\.\.\)"):
        QueueRuntime(storage, handlers, settings=cast("Any", {"lease": 5}))
    with pytest.raises(ConfigError, match=r"lease must be a timedelta, not 5 \(FORGE_LEASE\)"):
        RuntimeSettings(lease=cast("Any", 5))


async def test_a_list_takes_a_filter_and_a_number(storage: Storage) -> None:
    async with JobClient(storage) as client:
        with pytest.raises(InvalidInput, match=r"which: is a dict; give JobFilter"):
            await client.list(cast("Any", {"kinds": "x"}))
        with pytest.raises(InvalidInput, match=r"limit: is '5'; give 1 to 1000"):
            await client.list(limit=cast("Any", "5"))


async def test_a_rate_limit_is_a_rate_limit(storage: Storage) -> None:
    with pytest.raises(InvalidInput, match="has 5000 for 'gh'; give RateLimit"):
        QueueRuntime(storage, handlers, rate_limits={"gh": 5000})  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match="capacity: is '5'; give at least 1"):
        RateLimit(cast("Any", "5"))
    with pytest.raises(InvalidInput, match="per: is '1m'; give seconds or a timedelta"):
        RateLimit(5, per=cast("Any", "1m"))


def test_a_filter_takes_texts() -> None:
    assert JobFilter(kinds=cast("Any", "x")) == JobFilter(kinds=("x",))
    assert JobFilter(queues=cast("Any", ["x", "y"])) == JobFilter(queues=("x", "y"))
    done = JobFilter(statuses=cast("Any", ("done",)), causes=cast("Any", "failed"))
    assert done == JobFilter(statuses=(JobStatus.DONE,), causes=(Cause.FAILED,))
    assert isinstance(done.statuses[0], JobStatus)
    assert JobFilter(ids=()).ids == ()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"statuses": ("finished",)}, "statuses: holds 'finished'; give any of blocked, pending,"),
        ({"causes": "bored"}, "causes: holds 'bored'; give any of enqueued,"),
        ({"kinds": 5}, "kinds: is an int; give a tuple of texts"),
        ({"kinds": (5,)}, "kinds: holds a int; give a tuple of texts"),
        ({"tag": ("a",)}, "tag: is a tuple; give a text"),
        ({"enqueued_before": datetime(2030, 1, 1)}, "enqueued_before: is datetime"),  # noqa: DTZ001
    ],
)
def test_a_filter_names_the_part_that_is_wrong(part: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobFilter(**part)
    assert str(caught.value).startswith(message)


async def test_a_job_is_named_by_its_id(storage: Storage) -> None:
    async with JobClient(storage) as client:
        outcome: Any = await client.enqueue(EnqueueRequest("a", queue="q"))
        for call in (client.get, client.cancel, client.delete, client.state):
            with pytest.raises(InvalidInput, match=r"is an EnqueueOutcome; .* the job_id of an"):
                await call(outcome)


@pytest.mark.parametrize("name", ["delay", "apply_async", "send", "kiq"])
def test_a_handler_names_request_to_those_who_come_from_elsewhere(name: str) -> None:
    with pytest.raises(AttributeError, match=r"client\.enqueue\(sync_issue\.request\(\.\.\.\)\)"):
        getattr(sync_issue, name)
    assert not hasattr(sync_issue, "nonsense")


def test_a_number_is_no_retry_policy() -> None:
    for given in (5, "exponential"):
        with pytest.raises(
            RegistrationError, match=r"retry: is .*; give Exponential.*max_attempts"
        ):
            handlers.job("x", retry=cast("Any", given))
        with pytest.raises(InvalidInput, match=r"retry: is .*; give Exponential"):
            QueueSettings(retry=cast("Any", given))


def test_workers_are_a_number() -> None:
    with pytest.raises(InvalidInput, match="max_workers: is '2'; give 0 to"):
        QueueSettings(max_workers=cast("Any", "2"))


def test_a_context_without_annotation_is_no_argument() -> None:
    registry = HandlerRegistry()
    with pytest.raises(RegistrationError, match="ctx has no annotation; write ctx: JobContext"):

        @registry.job("a")
        async def unsaid(ctx, number: int) -> None: ...  # type: ignore[no-untyped-def]

    @registry.job("b")
    async def said(ctx: JobContext, number: int) -> None: ...

    @registry.job("c")
    async def an_argument(ctx: dict[str, int]) -> None: ...

    assert an_argument.context_parameter is None


def test_the_decorator_is_called_with_a_kind() -> None:
    with pytest.raises(RegistrationError, match=r"write @handlers\.job\('greet'\) above"):

        @handlers.job  # type: ignore[arg-type]
        def greet() -> None: ...


@pytest.mark.parametrize("name", ["gh slack", " gh", "gh ", "g\u00a0h"])
async def test_a_queue_has_no_white_space(storage: Storage, name: str) -> None:
    expected = "contains white space; remove it; commas stand between queues, as in gh,slack"
    runtime = QueueRuntime(storage, handlers)
    for call in (
        lambda: runtime.with_queues(name),
        lambda: runtime.with_queues(**{name: 2}),
        lambda: runtime.ensure_queue(name),
        lambda: prefix_router({"a": name}),
    ):
        with pytest.raises(InvalidInput, match=expected):
            call()
    with pytest.raises(RegistrationError, match=expected):
        handlers.job("x", queue=name)
    async with JobClient(storage) as client:
        with pytest.raises(InvalidInput, match=expected):
            await client.enqueue(EnqueueRequest("x"), queue=name)


def test_queues_of_a_deployment_are_separated_by_commas() -> None:
    with pytest.raises(ConfigError, match=r"FORGE_QUEUES: is 'gh slack', .* as in gh,slack"):
        Deployment.from_environment({"FORGE_QUEUES": "gh slack"})
    assert Deployment.from_environment({"FORGE_QUEUES": " gh , slack=2 "}).queues == {
        "gh": None,
        "slack": 2,
    }


async def test_an_id_is_still_an_id(storage: Storage) -> None:
    async with JobClient(storage) as client:
        assert await client.get(new_job_id()) is None
