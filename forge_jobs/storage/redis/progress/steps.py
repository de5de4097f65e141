"""Checkpoints of jobs. Steps in transactions of a handler need a store in that database."""

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.locators.asking import find_by_queue


async def save_checkpoint(db: Database, claim: Claim, text: str) -> bool | None:
    """See ``JobStore.save_checkpoint``."""
    base = db.keys.queue(claim.queue)
    request = request_of(
        "save_checkpoint", id=claim.job_id, token=claim.token, host=claim.host_id, value=text
    )
    return await db.run_one("save_checkpoint", base, request, bool)


async def checkpoint(db: Database, job_id: JobId) -> str | None:
    """See ``JobStore.checkpoint``."""
    for base in await find_by_queue(db, [job_id]):
        return await db.run_one("checkpoint", base, job_id, str) or None
    return None
