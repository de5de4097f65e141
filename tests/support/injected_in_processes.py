"""Handlers in processes whose parameters are injected. Children import this module."""

import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

import anyio

from forge_jobs import Depends, HandlerRegistry, Injected, JobContext, Shared


def note(mark: str, text: str) -> None:
    """Append a line to the file of the job."""
    with Path(mark).open("a") as file:
        file.write(f"{text}\n")


def around(ctx: JobContext, mark: str) -> Iterator[None]:
    """Note what the middleware sees."""
    note(mark, "middleware")
    try:
        yield
    finally:
        note(mark, f"middleware ends by {type(sys.exception()).__name__}")


handlers = HandlerRegistry(middleware=[around])


@handlers.job("injected.child", executor="process")
def child(mark: str) -> None:
    """Do nothing."""


async def pool(folder: str = "") -> AsyncIterator[str]:
    """Make one value for all jobs of the process."""
    made = f"pool of {os.getpid()}"
    yield made
    note(os.environ["FORGE_TEST_POOL"], f"closes the {made}")


async def on_loop(ctx: JobContext, mark: str, hangs: str) -> AsyncIterator[str]:
    """Work on the event loop of the child."""
    outcome = await ctx.enqueue(child.request(mark))
    note(mark, f"loop {len(outcome.job_id)}")
    if hangs == "loop":
        await anyio.sleep_forever()
    try:
        yield "loop"
    finally:
        note(mark, f"loop ends by {type(sys.exception()).__name__}")


def in_call(
    ctx: JobContext, mark: str, hangs: str, before: Annotated[str, Depends(on_loop)]
) -> Iterator[str]:
    """Work in a plain call on the main thread of the child."""
    outcome = ctx.sync.enqueue(child.request(mark))
    note(mark, f"call {len(outcome.job_id)}")
    if hangs == "call":
        time.sleep(600)
    if hangs == "dies":
        os._exit(3)
    try:
        yield f"{before} and call"
    finally:
        # Long enough that a second interruption would hit the clean-up.
        time.sleep(0.2)
        note(mark, f"call ends by {type(sys.exception()).__name__}")


@handlers.job("injected.plain", executor="process", max_crashes=1)
def plain(
    mark: str,
    hangs: str = "",
    value: str = Depends(in_call),
    log: logging.Logger = Injected,
    pool: str = Shared(pool),
) -> list[str]:
    """Note the run in a plain function."""
    log.info("in the child")
    note(mark, "handler")
    if hangs == "handler":
        time.sleep(600)
    return [value, pool]


@handlers.job("injected.async", executor="process", max_crashes=1)
async def awaits(
    ctx: JobContext,
    mark: str,
    hangs: str = "",
    value: str = Depends(in_call),
    pool: str = Shared(pool),
) -> list[str]:
    """Note the run in a coroutine."""
    note(mark, "handler")
    if hangs == "handler":
        await anyio.sleep_forever()
    return [value, pool]
