"""``fake_context``: a context without a pod, that records what a handler does."""

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs import EnqueueRequest, InvalidInput, JobContext, Steps, UndecodablePayload
from forge_jobs.handlers.context import RateLimits, SyncJobContext, SyncRateLimits
from forge_jobs.testing import fake_context
from tests.kit import shop


@pytest.mark.parametrize("protocol", [JobContext, SyncJobContext, RateLimits, SyncRateLimits])
def test_it_has_all_that_a_context_has(protocol: type[object]) -> None:
    context = fake_context()
    fakes: dict[type[object], object] = {
        JobContext: context,
        SyncJobContext: context.sync,
        RateLimits: context.rate_limit,
        SyncRateLimits: context.sync.rate_limit,
    }
    fake = fakes[protocol]
    names = [name for name in vars(protocol) if not name.startswith("_")]
    assert names
    assert [name for name in names if not hasattr(fake, name)] == []
    for name in names:
        method = getattr(protocol, name)
        if inspect.isfunction(method):
            there = inspect.signature(getattr(fake, name)).parameters
            assert [*there] == [*inspect.signature(method).parameters][1:], name


def test_it_fits_where_a_context_is_asked_for() -> None:
    context: JobContext = fake_context()
    assert (context.attempt, context.max_attempts, context.queue) == (1, 5, "default")
    context.log.info("seen")


def test_a_handler_is_called_with_one_in_a_plain_test() -> None:
    context = fake_context(attempt=2, tags=["a"], metadata={"by": "web"}, trace={"a": "b"})
    assert asyncio.run(shop.send_receipt(context, 7)) == "7 in attempt 2"
    shop.split(context, [1, 2])
    asyncio.run(shop.chain(context, 3))
    assert [(request.kind, request.payload) for request in context.enqueued] == [
        ("mail.receipt", '{"order":1}'),
        ("mail.receipt", '{"order":2}'),
        ("shop.chain", '{"left":2}'),
    ]
    assert (context.tags, context.metadata) == (("a",), {"by": "web"})
    assert (context.trace, fake_context().trace) == ({"a": "b"}, {})


def test_a_wrong_request_is_refused() -> None:
    context = fake_context()
    with pytest.raises(InvalidInput, match=r"^priority"):
        context.sync.enqueue(shop.send_receipt.request(7), priority=1_000)
    assert context.enqueued == []


def test_rate_limits_have_tokens_without_end_or_as_many_as_given() -> None:
    context = fake_context()
    assert context.sync.rate_limit.acquire("smtp", 1_000)
    few = fake_context(rate_limits={"smtp": 2})
    assert few.sync.rate_limit.acquire("smtp", 2)
    assert not few.sync.rate_limit.acquire("smtp")
    assert few.acquired == {"smtp": 2}
    with pytest.raises(InvalidInput, match="has no scope 'http', only 'smtp'"):
        few.sync.rate_limit.acquire("http")


async def _drained() -> list[str]:
    context = fake_context(rate_limits={"smtp": 2})
    await context.rate_limit.drain("smtp")
    assert not await context.rate_limit.acquire("smtp")
    return context.drained


def test_a_drained_limit_is_empty() -> None:
    assert asyncio.run(_drained()) == ["smtp"]


def test_the_rest_is_recorded() -> None:
    context = fake_context()
    context.extend_timeout(5)
    context.extend_timeout(timedelta(seconds=2))
    context.sync.finish_in("connection", 7)
    assert context.extended_by == timedelta(seconds=7)
    assert context.finished_in == [("connection", 7)]
    assert not context.cancel_requested
    context.stop_reason = "shutdown"
    assert context.cancel_requested


def test_added_steps_are_recorded() -> None:
    context, steps = fake_context(), Steps()
    steps.step("one", EnqueueRequest("tests.noop"))
    assert list(context.sync.add_steps(steps)) == ["one"]
    assert context.added_steps == [steps]


def test_checkpoints_steps_and_progress_are_kept() -> None:
    context = fake_context(steps=["charge"], parents=[])
    assert context.sync.load_checkpoint(default=0) == 0
    context.sync.checkpoint(shop.Order(7))
    assert context.sync.load_checkpoint(shop.Order) == shop.Order(7)
    with pytest.raises(UndecodablePayload, match="checkpoint"):
        context.sync.load_checkpoint(int)
    assert fake_context(checkpoint={"row": 3}).sync.load_checkpoint() == {"row": 3}
    assert not context.sync.once("connection", "charge")
    assert context.sync.once("connection", "ship")
    assert context.steps == ["charge", "ship"]
    context.progress.set(1, 2, "half")
    assert context.progress.reports == [(1, 2, "half")]
    assert context.sync.parents() == ()


def test_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(TypeError, match="atempt"):
        fake_context(atempt=2)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((-1,), "current"),
        ((float("nan"),), "current"),
        (("a",), "current"),
        ((True,), "current"),
        ((1, -1), "total"),
        ((1, float("inf")), "total"),
        ((1, 2, 3), "message"),
    ],
)
def test_progress_that_a_run_would_refuse_is_refused(given: tuple[Any, ...], field: str) -> None:
    context = fake_context()
    with pytest.raises(InvalidInput, match=f"^{field}: is "):
        context.progress.set(*given)
    assert context.progress.reports == []
