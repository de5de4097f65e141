"""Handlers and a producer for programs of any release. Copied beside the tests' files and run by
each release's interpreter, so nothing here may be newer than the oldest of them.

``python rolling_jobs.py URL NAME MODES`` enqueues until the file ``NAME.stop`` exists. Each line of
``NAME.accepted`` is a job that ``enqueue`` has returned, each of ``NAME.refused`` an error.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from forge_jobs import (
    Delays,
    EnqueueOutcome,
    EnqueueRequest,
    HandlerRegistry,
    JobClient,
    JobContext,
    Snoozed,
    Unique,
    open_storage,
)

handlers = HandlerRegistry()
QUEUE, OTHER = "rolling", "other"
WINDOWS: dict[str, dict[str, float]] = {
    "debounce": {"window": 0.5, "at_most": 1.5},
    "cooldown": {"window": 1.0},
}
PACE = 0.1
"""Seconds between two batches of a producer."""


def _line(path: str, *words: object) -> None:
    """Append one line by one write, so that lines of several processes do not mix."""
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


@contextmanager
def _noted(ctx: JobContext) -> Iterator[None]:
    """A line before, and one after: ``end``, or ``cut`` when the run raises."""
    words = (ctx.job_id, ctx.attempt, os.getpid(), ctx.queue)
    _line("ledger", "start", *words)
    try:
        yield
    except BaseException:
        _line("ledger", "cut", *words)
        raise
    _line("ledger", "end", *words)


def _is_first(mark: str) -> bool:
    """Return whether this mark is new, and leave the mark."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@handlers.job("rolling.quick", queue=QUEUE)
async def quick(ctx: JobContext, n: int) -> int:
    """End at once."""
    with _noted(ctx):
        return n


@handlers.job("rolling.slow", queue=QUEUE)
async def slow(ctx: JobContext, n: int) -> None:
    """Take so long that a stop meets some."""
    with _noted(ctx):
        await anyio.sleep(0.7)


@handlers.job("rolling.thread", queue=OTHER)
def in_thread(ctx: JobContext, n: int) -> None:
    """Run in a thread."""
    with _noted(ctx):
        pass


@handlers.job("rolling.retried", queue=QUEUE, max_attempts=3, retry=Delays((0.2,)))
async def retried(ctx: JobContext, n: int) -> None:
    """Fail the first time."""
    with _noted(ctx):
        if ctx.attempt < 2:
            raise ConnectionError("the first attempt fails")


@handlers.job("rolling.snoozed", queue=OTHER)
async def snoozed(ctx: JobContext, n: int) -> None:
    """Snooze the first time."""
    with _noted(ctx):
        if _is_first(f"snoozed-{ctx.job_id}"):
            raise Snoozed(0.3)


@handlers.cron("* * * * * *")
@handlers.job("rolling.tick", queue=OTHER)
async def tick(ctx: JobContext) -> None:
    """Run each second, in the whole fleet."""
    with _noted(ctx):
        pass


async def _batch(client: JobClient, number: int, modes: Sequence[str]) -> None:
    """Enqueue jobs of all kinds, and note those that were accepted."""
    plain = [
        EnqueueRequest(f"rolling.{kind}", {"n": number}) for kind in ("quick", "quick", "retried")
    ]
    later = EnqueueRequest("rolling.thread", {"n": number}, delay=0.2)
    outcomes = await client.enqueue_many([*plain, later])
    for outcome in outcomes:
        _accepted(outcome)
    parent = await client.enqueue(EnqueueRequest("rolling.quick", {"n": number}))
    _accepted(parent)
    child = EnqueueRequest("rolling.quick", {"n": number}, after=[parent.job_id])
    _accepted(await client.enqueue(child))
    if number % 4 == 0:
        _accepted(await client.enqueue(EnqueueRequest("rolling.slow", {"n": number})))
        _accepted(await client.enqueue(EnqueueRequest("rolling.snoozed", {"n": number})))
    for mode in modes:
        # Of one key come a request every so often, from each producer: some meet a running job.
        key = f"{mode}-{number % 3}"
        unique: Any = Unique(key, mode=mode, **WINDOWS.get(mode, {}))  # type: ignore[arg-type]
        request = EnqueueRequest("rolling.slow", {"n": number}, unique=unique)
        _accepted(await client.enqueue(request))


def _accepted(outcome: EnqueueOutcome) -> None:
    _line(f"{sys.argv[2]}.accepted", outcome.job_id)


async def produce(url: str, name: str, modes: Sequence[str]) -> None:
    """Enqueue until the file is there."""
    number = 0
    async with await open_storage(url) as storage, JobClient(storage, handlers) as client:
        while not await anyio.Path(f"{name}.stop").exists():
            number += 1
            try:
                await _batch(client, number, modes)
            except Exception as error:
                _line(f"{name}.refused", f"{type(error).__name__}: {error}".replace("\n", " "))
            await anyio.sleep(PACE)


if __name__ == "__main__":
    anyio.run(produce, sys.argv[1], sys.argv[2], sys.argv[3:])
