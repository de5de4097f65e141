"""Handlers with limits by key that note what they do in a ledger outside the store."""

import anyio

from forge_jobs import HandlerRegistry, JobContext, Limit
from tests.support.ledger_handlers import noted

limited = HandlerRegistry()

LIMITS = {"limited.pairs": 2, "limited.alone": 1}
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
