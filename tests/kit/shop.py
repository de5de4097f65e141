"""Handlers of a program under test."""

import asyncio
import threading
from dataclasses import dataclass

from forge_jobs import (
    DEAD_LETTER_KIND,
    Again,
    Dead,
    DeadLetter,
    Failed,
    HandlerRegistry,
    JobContext,
    RateLimited,
    RunEnd,
    Snoozed,
    Throttled,
)

handlers = HandlerRegistry()
threads: list[int] = []
heard: list[RunEnd] = []


@dataclass
class Order:
    """An argument that is no plain JSON."""

    number: int
    note: str = ""


@handlers.job("mail.receipt", queue="mail", tags=["mail"])
async def send_receipt(ctx: JobContext, order: int) -> str:
    """Return the order and the attempt."""
    return f"{order} in attempt {ctx.attempt}"


@handlers.job("shop.pack")
def pack(order: Order) -> Order:
    """Return the order."""
    threads.append(threading.get_ident())
    return order


@handlers.job("shop.ends")
async def end(how: str) -> object:
    """Raise or return an outcome."""
    outcomes = {
        "snoozed": Snoozed(60),
        "throttled": Throttled(30),
        "failed": Failed("not yet", retry_in=5),
        "dead": Dead("never"),
        "limited": RateLimited("mails"),
    }
    if how == "returned":
        return Snoozed(60)
    if how == "class":
        return Snoozed
    if how == "unstorable":
        return object()
    if how == "error":
        raise ValueError("no such order")
    raise outcomes[how]


@handlers.job("shop.slow", timeout=0.05)
async def wait_long() -> None:
    """Take longer than allowed."""
    await asyncio.Event().wait()


@handlers.job("shop.forgets")
async def forget(ctx: JobContext) -> None:
    """Forget an await."""
    ctx.enqueue(send_receipt.request(1))  # type: ignore[unused-coroutine]


@handlers.job("shop.chain")
async def chain(ctx: JobContext, left: int) -> None:
    """Enqueue the next of a chain."""
    if left:
        await ctx.enqueue(chain.request(left - 1))


@handlers.job("shop.pages")
async def pages(ctx: JobContext, page: int = 1, last: int = 3, after: float = 0) -> object:
    """Begin again for each page."""
    if page == last:
        return f"{last} pages in {ctx.occurrence}"
    if page % 2:
        raise Again(after, payload={"page": page + 1, "last": last, "after": after})
    return Again(after, payload={"page": page + 1, "last": last, "after": after})


@handlers.job("shop.pages_badly")
async def pages_badly(page: int = 1) -> object:
    """Ask for a page that is none."""
    return Again(payload={"page": "two"})


@handlers.job("shop.split", queue="splits")
def split(ctx: JobContext, orders: list[int]) -> None:
    """Enqueue a receipt for each order, from a thread."""
    ctx.sync.enqueue_many(send_receipt.request(order) for order in orders)


def hear(end: RunEnd) -> None:
    """Keep the end."""
    heard.append(end)


@handlers.job("shop.restock", on_retry=hear)
def restock() -> None:
    """Fail."""
    raise LookupError("out of stock")


@handlers.job(DEAD_LETTER_KIND)
async def read_letter(letter: DeadLetter) -> str:
    """Say what died."""
    return f"{letter.kind} {letter.cause}"
