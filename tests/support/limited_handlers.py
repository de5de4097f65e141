"""Handlers with limits by key and of sequences.

They note what they do in a ledger outside the store.
"""

import os
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel

from forge_jobs import Dead, Fixed, HandlerRegistry, JobContext, Limit, Sequence
from tests.support.ledger import note
from tests.support.ledger_handlers import noted

limited = HandlerRegistry()

LIMITS = {"limited.pairs": 2, "limited.alone": 1, "lined.wait": 2}
"""Kinds, and how many jobs of a key run at once."""


@limited.job("limited.pairs", concurrency=Limit(LIMITS["limited.pairs"], key="{key}"))
async def pairs(ctx: JobContext, ledger: str, seconds: float, key: str) -> int:
    """Take ``seconds``, and return the token of the claim."""
    with noted(ctx, ledger):
        await anyio.sleep(seconds)
    return ctx.token


@limited.job("limited.alone", concurrency=Limit(LIMITS["limited.alone"], key="{key}"))
async def alone(ctx: JobContext, ledger: str, seconds: float, key: str) -> int:
    """Do the same under the other limit."""
    return await pairs(ctx, ledger, seconds, key)


@limited.job("limited.free")
async def free(ctx: JobContext, ledger: str, seconds: float, key: str) -> int:
    """Do the same under no limit."""
    return await pairs(ctx, ledger, seconds, key)


Fails = Literal["", "once", "for good"]
"""The end of the first run of a handler of a sequence: a success, a failure, or death."""


async def _lined(ctx: JobContext, ledger: str, seconds: float, fails: Fails) -> int:
    """Take ``seconds``, fail if asked to and not done yet, and return the token of the claim."""
    if not fails or not _is_first(ctx, ledger):
        with noted(ctx, ledger):
            await anyio.sleep(seconds)
        return ctx.token
    note(ledger, "start", ctx.job_id, ctx.attempt, ctx.token)
    await anyio.lowlevel.checkpoint()
    note(ledger, "fail", ctx.job_id, ctx.attempt, ctx.token)
    if fails == "once":
        raise RuntimeError("as the test asked")
    raise Dead("as the test asked")


def _is_first(ctx: JobContext, ledger: str) -> bool:
    """Return whether no run of the job has asked before."""
    folder = Path(f"{ledger}.failed")
    folder.mkdir(exist_ok=True)
    try:
        os.close(os.open(folder / ctx.job_id, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@limited.job(
    "lined.wait",
    sequence=Sequence("{line}"),
    concurrency=Limit(LIMITS["lined.wait"], key="{key}"),
    retry=Fixed(0.05),
)
async def waits(
    ctx: JobContext, ledger: str, seconds: float, key: str, line: str, fails: Fails
) -> int:
    """Run in order, under a limit that several sequences share."""
    return await _lined(ctx, ledger, seconds, fails)


@limited.job("lined.skip", sequence=Sequence("{line}", on_failure="skip"), retry=Fixed(0.05))
async def skips(
    ctx: JobContext, ledger: str, seconds: float, key: str, line: str, fails: Fails
) -> int:
    """Run in order. The next one passes a dead job."""
    return await _lined(ctx, ledger, seconds, fails)


@limited.job("lined.stop", sequence=Sequence("{line}", on_failure="stop"), retry=Fixed(0.05))
async def stops(
    ctx: JobContext, ledger: str, seconds: float, key: str, line: str, fails: Fails
) -> int:
    """Run in order. The next one passes neither a dead job nor a cancelled one."""
    return await _lined(ctx, ledger, seconds, fails)
