"""Handlers that note what they do in a ledger outside the store."""

import time
from pathlib import Path

import anyio

from forge_jobs import HandlerRegistry, JobContext
from tests.support.ledger import note

handlers = HandlerRegistry()


@handlers.job("ledger.work", keep_result=False)
async def work(ctx: JobContext, ledger: str, seconds: float) -> None:
    """Take ``seconds``, with a line before and one after."""
    note(ledger, "start", ctx.job_id, ctx.attempt, ctx.token)
    await anyio.sleep(seconds)
    note(ledger, "end", ctx.job_id, ctx.attempt, ctx.token)


@handlers.job("ledger.wait_for_file", keep_result=False)
async def wait_for_file(ctx: JobContext, ledger: str, gate: str) -> None:
    """End as soon as the file ``gate`` exists."""
    note(ledger, "start", ctx.job_id, ctx.attempt, ctx.token)
    while not await anyio.Path(gate).exists():  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.01)
    note(ledger, "end", ctx.job_id, ctx.attempt, ctx.token)


@handlers.job("ledger.wait_in_thread", keep_result=False)
def wait_in_thread(ctx: JobContext, ledger: str, gate: str) -> None:
    """As ``wait_for_file``, in a thread: no cancellation can stop it."""
    note(ledger, "start", ctx.job_id, ctx.attempt, ctx.token)
    while not Path(gate).exists():
        time.sleep(0.01)
    note(ledger, "end", ctx.job_id, ctx.attempt, ctx.token)
