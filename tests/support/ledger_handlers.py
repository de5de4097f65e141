"""Handlers that note what they do in a ledger outside the store."""

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec

from forge_jobs import (
    DEAD_LETTER_KIND,
    Again,
    Dead,
    DeadLetter,
    Depends,
    HandlerRegistry,
    JobContext,
)
from tests.support.ledger import Ledger, note

handlers = HandlerRegistry()


@contextmanager
def noted(ctx: JobContext, ledger: str) -> Iterator[None]:
    """A line before, and one after: ``end``, or ``cut`` when the handler is stopped."""
    note(ledger, "start", ctx.job_id, ctx.attempt, ctx.token)
    try:
        yield
    except BaseException:
        note(ledger, "cut", ctx.job_id, ctx.attempt, ctx.token)
        raise
    note(ledger, "end", ctx.job_id, ctx.attempt, ctx.token)


@handlers.job("ledger.work", keep_result=False)
async def work(ctx: JobContext, ledger: str, seconds: float) -> None:
    """Take ``seconds``."""
    with noted(ctx, ledger):
        await anyio.sleep(seconds)


@handlers.job("ledger.linger", keep_result=False)
async def linger(ctx: JobContext, ledger: str, seconds: float) -> None:
    """Take ``seconds`` the first time, and no time again: a job to be found running."""
    with noted(ctx, ledger):
        if len(Ledger.read(ledger).by_job()[ctx.job_id]) == 1:
            await anyio.sleep(seconds)


def dies_in_attempt_1(ctx: JobContext) -> None:
    """Note the call, and kill the process in the first attempt."""
    with Path(ctx.metadata["hooks"]).open("a") as file:
        file.write(f"on_done in attempt {ctx.attempt}\n")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@handlers.job("ledger.dies_in_a_hook", keep_result=False, on_done=dies_in_attempt_1)
async def dies_in_a_hook(ctx: JobContext, ledger: str) -> None:
    """Do nothing, and let the hook kill the process."""
    with noted(ctx, ledger):
        pass


@handlers.job("ledger.wait_for_file", keep_result=False)
async def wait_for_file(ctx: JobContext, ledger: str, gate: str) -> None:
    """End as soon as the file ``gate`` exists."""
    with noted(ctx, ledger):
        while not await anyio.Path(gate).exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.01)


@handlers.job("ledger.wait_in_thread", keep_result=False)
def wait_in_thread(ctx: JobContext, ledger: str, gate: str) -> None:
    """Run as ``wait_for_file`` does, in a thread: no cancellation can stop the thread."""
    with noted(ctx, ledger):
        while not Path(gate).exists():
            time.sleep(0.01)


@handlers.job("ledger.die")
async def die(ctx: JobContext, ledger: str) -> None:
    """Give up at once."""
    with noted(ctx, ledger):
        raise Dead("as the test asked")


@handlers.job(DEAD_LETTER_KIND, keep_result=False)
async def read_letter(ctx: JobContext, letter: DeadLetter) -> None:
    """Take no time. The dead job's payload names the ledger."""
    with noted(ctx, msgspec.json.decode(letter.payload)["ledger"]):
        pass


@handlers.job("ledger.chain", max_attempts=None)
async def chain(ctx: JobContext, ledger: str, number: int, last: int) -> object:
    """Note the number as that of the attempt, and begin again with the next one."""
    note(ledger, "start", ctx.job_id, number, ctx.token)
    note(ledger, "end", ctx.job_id, number, ctx.token)
    if number == last:
        return number
    return Again(payload={"ledger": ledger, "number": number + 1, "last": last})


async def lingering(ctx: JobContext, ledger: str, amid: str) -> AsyncIterator[int]:
    """Note a run around everything. In the first one take for ever, before or behind the yield."""
    note(ledger, "start", ctx.job_id, ctx.attempt, ctx.token)
    is_first = len(Ledger.read(ledger).by_job()[ctx.job_id]) == 1
    if is_first and amid == "the factory":
        await anyio.sleep_forever()
    yield ctx.attempt
    if is_first and amid == "the clean-up":
        await anyio.sleep_forever()
    note(ledger, "end", ctx.job_id, ctx.attempt, ctx.token)


@handlers.job("ledger.inject")
async def inject(
    ctx: JobContext, ledger: str, amid: str, made: int = Depends(lingering)
) -> list[int]:
    """Return the numbers of the runs, as the factory and the handler see them."""
    note(f"{ledger}.handler", "start", ctx.job_id, ctx.attempt, ctx.token)
    return [made, ctx.attempt]


def seeded_chain(arguments: Mapping[str, str | int]) -> HandlerRegistry:
    """Return a registry whose pods make sure that there is a ``ledger.chain``."""
    seeded = HandlerRegistry()
    seeded.register(chain.function, "ledger.chain", queue="work", seed=arguments)
    return seeded
