"""Uses of the package that two type checkers must accept. Nothing here is run."""

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypeVar, Unpack, assert_type

from forge_jobs import (
    Depends,
    EnqueueOptions,
    EnqueueOutcome,
    EnqueueRequest,
    FromStep,
    Handler,
    HandlerRegistry,
    Injected,
    JobClient,
    JobContext,
    JobOptions,
    QueueHandle,
    Shared,
    Snoozed,
    SyncJobClient,
    Unique,
)
from forge_jobs.testing import fake_context, run_inline

R = TypeVar("R")


@dataclass
class Report:
    pages: int


class Session:
    async def add(self, text: str) -> None: ...


async def session() -> AsyncIterator[Session]:
    yield Session()


Db = Annotated[Session, Depends(session)]
handlers = HandlerRegistry()


@handlers.job("first", queue="reports", timeout=60, tags=["x"], unique=Unique(by=("order",)))
async def first(ctx: JobContext, order: int, address: str = "") -> Report:
    return Report(order)


@handlers.job("last", aliases=["latest"], retry_on=OSError, executor="process")
async def last(order: int, address: str, ctx: JobContext) -> str:
    return address


@handlers.job("between")
def between(order: int, ctx: JobContext, address: str, to: str, by: str, at: int) -> str:
    return address


@handlers.job("without")
def without(order: int, *, address: str = "") -> str:
    return address


@handlers.cron("@daily", timezone="Europe/Berlin", jitter=timedelta(minutes=1), overlap="skip")
@handlers.job("nothing")
def nothing(ctx: JobContext) -> None:
    return None


@handlers.job("injects")
async def injects(
    ctx: JobContext,
    order: int,
    db: Db = Injected,
    log: logging.Logger = Injected,
    pool: Session = Shared(Session),
) -> int | Snoozed:
    await db.add(f"order {order}")
    return order


@handlers.job("of.steps")
async def of_steps(
    order: int, pages: list[Report] = FromStep("a"), more: Annotated[int, FromStep("b")] = Injected
) -> int:
    return len(pages) + more


def nightly(
    function: Callable[..., R], kind: str, **options: Unpack[JobOptions]
) -> Handler[..., R]:
    return handlers.register(function, kind, **options)


async def _at_night(order: int) -> list[Report]:
    return []


at_night = nightly(_at_night, "report.night", priority=10)


async def calls(ctx: JobContext) -> None:
    """The decorated function stays what it was."""
    assert_type(await first(ctx, 7), Report)
    assert_type(await injects(ctx, 7, db=Session()), int | Snoozed)
    assert_type(without(7, address="a@b"), str)
    assert_type(await run_inline(first, 7, context=fake_context()), Report)
    assert_type(await run_inline(without, 7), str)


def requests() -> None:
    """A request knows the arguments, and what the handler returns."""
    assert_type(first.request(7, "a@b"), EnqueueRequest[Report])
    assert_type(first.request(7, address="a@b").options(priority=1), EnqueueRequest[Report])
    assert_type(first.request(order=7), EnqueueRequest[Report])
    assert_type(last.request(7, "a@b"), EnqueueRequest[str])
    assert_type(last.request(7, address="a@b"), EnqueueRequest[str])
    assert_type(between.request(7, "a@b", "to", "by", 3), EnqueueRequest[str])
    assert_type(without.request(7, address="a@b"), EnqueueRequest[str])
    assert_type(nothing.request(), EnqueueRequest[None])
    assert_type(injects.request(7), EnqueueRequest[int | Snoozed])
    assert_type(of_steps.request(7), EnqueueRequest[int])
    assert_type(at_night.request(7), EnqueueRequest[list[Report]])
    plain: EnqueueRequest = first.request(7)
    several: list[EnqueueRequest] = [first.request(7), without.request(7), plain]
    print(several, EnqueueRequest("mail.send", {"to": "a@b"}, priority=1))


async def results(client: JobClient, handle: QueueHandle, some: Handler[..., Any]) -> None:
    """The outcome of an enqueue carries the type of the result. An id does not."""
    outcome = await client.enqueue(first.request(7), priority=3, delay=timedelta(hours=1))
    assert_type(outcome, EnqueueOutcome[Report])
    assert_type((await client.result(outcome, 1)).pages, int)
    assert_type(await handle.result(outcome, timeout=1), Report)
    assert_type(await client.result(outcome.job_id, 1), Any)
    assert_type(await client.result(outcome.job_id, 1, Report), Report)
    assert_type(await client.result(outcome.job_id, 1, list[int]), list[int])
    assert_type(await handle.result(await handle.enqueue(without.request(7)), 1), str)
    assert_type(await client.result(await client.enqueue(EnqueueRequest("x")), 1), Any)
    many = await client.enqueue_many([without.request(7), last.request(8, "a@b")], spread=60)
    assert_type(many, list[EnqueueOutcome[str]])
    await client.enqueue_many([first.request(7), without.request(7)])
    await client.enqueue(some.request(1, anything=2), **later())


def later() -> EnqueueOptions:
    return {"delay": 60, "tags": ["later"]}


def blocking(client: SyncJobClient) -> None:
    """The blocking client is typed the same."""
    assert_type(client.result(client.enqueue(first.request(7), max_attempts=None), 1), Report)
    assert_type(client.result("01", 1, Report), Report)


async def in_a_handler(ctx: JobContext) -> None:
    """The context is typed as the client, and the results of parents as asked."""
    assert_type(await ctx.enqueue(first.request(7), priority=1), EnqueueOutcome[Report])
    assert_type(ctx.sync.enqueue(without.request(7), queue="x"), EnqueueOutcome[str])
    [parent] = await ctx.parents()
    assert_type(parent.result(Report), Report)
    assert_type(parent.result(), Any)
