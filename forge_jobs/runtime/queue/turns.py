"""The due time of a job that waits for a rate limit."""

import asyncio
from datetime import timedelta

from msgspec import structs

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.jobs import Cause
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.failures import error_record
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.queue.services import PodServices

logger = reporter(__name__)

_PATIENCE = 2.0
"""Seconds. The worker stays taken during the question to the store."""

_WITHOUT_ANSWER = timedelta(seconds=5)


async def with_turn(end: AttemptEnd, run: Run, services: PodServices) -> AttemptEnd:
    """Complete the end of a run that waits for tokens: the job is due when the job's turn comes.

    While the store gives no turn, the job is due again within a few seconds. A job fails that waits
    for a limit that is not declared, or for more tokens than the limit ever holds.
    """
    scope = end.rate_limit or ""
    try:
        async with asyncio.timeout(_PATIENCE):
            turn = await services.rate_limit.turn(scope, end.tokens)
    except (NotFound, InvalidInput) as error:
        record = error_record(
            error, Cause.FAILED, attempt=run.job.attempt, host_id=services.host_id
        )
        return AttemptEnd(cause=Cause.FAILED, error=record, exception=error)
    except (Exception, asyncio.CancelledError) as error:
        # Whatever the store answers, and even when cancelled, the job waits and loses nothing.
        logger.debug("no turn at the rate limit %r: %s", scope, error)
        turn = _WITHOUT_ANSWER * services.rng.uniform(0.2, 1.0)
    return structs.replace(end, delay=turn)
