"""The questions before a run: strikes, and tokens of a rate limit."""

import asyncio
from datetime import timedelta

from msgspec import structs

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.jobs import Cause
from forge_jobs.model.queues import RateAsk
from forge_jobs.model.strikes import struck_by
from forge_jobs.model.transitions import struck_record
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.failures import error_record
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.queue.services import PodServices

logger = reporter(__name__)

_PATIENCE = 2.0
"""Seconds. The worker stays taken during the question to the store."""

_WITHOUT_ANSWER = timedelta(seconds=5)

DROPPED = AttemptEnd(cause=Cause.DROPPED)
"""Of a job whose handler drops what finds no token."""


async def may_not_run(run: Run, services: PodServices) -> AttemptEnd | None:
    """Return the end of a run that a strike or a rate limit does not allow, else None."""
    if services.strikes.are_asked and (end := await _struck(run, services)) is not None:
        return end
    return await _without_token(run, services)


async def _struck(run: Run, services: PodServices) -> AttemptEnd | None:
    """Return the end of a run that a strike of an operator does not allow. None: none does.

    While the store does not say which strikes there are, the job waits a few seconds.
    """
    job = run.job
    if run.stop_reason is not None:
        return None
    try:
        async with asyncio.timeout(_PATIENCE):
            strike = await services.strikes.verdict(job.kind, run.payload)
    except asyncio.CancelledError:
        run.stop(StopReason.SHUTDOWN)  # by the program
        return None
    except Exception as error:
        logger.debug("the strikes are not known: %s", error)
        run.finish()
        return AttemptEnd(cause=Cause.STRUCK, delay=_WITHOUT_ANSWER * services.rng.uniform(0.2, 1))
    if strike is None:
        return None
    run.finish()
    fate = struck_by(strike)
    if not fate.message:
        return AttemptEnd(cause=Cause.STRUCK, rate_limit=fate.mark)
    record = struck_record(fate.message, attempt=job.attempt, host_id=services.host_id)
    return AttemptEnd(cause=Cause.STRUCK, rate_limit=fate.mark, error=record, is_final=True)


async def _without_token(run: Run, services: PodServices) -> AttemptEnd | None:
    """Return the end of a run whose handler declares a rate limit that has no token for the job.

    Nothing starts without a token: while the store gives no answer, the job is due again within a
    few seconds. None: the run may start, or says itself why it does not.
    """
    handler = run.handler
    rate = handler.rate
    if rate is None or run.stop_reason is not None:
        return None
    try:
        ask = handler.rate_ask(run.payload())
    except Exception:
        return None  # The handler cannot decode such a payload either, and the run says why.
    if ask is None:
        return None
    if run.job.rate_limit == ask.scope:
        ask = structs.replace(ask, had_turn=True)
    try:
        if await services.tokens.taken(run.job.claim.job_id):
            return None
        grant = await services.rate_limit.start(ask, lambda: rate.limit)
    except asyncio.CancelledError:
        run.stop(StopReason.SHUTDOWN)  # by the program
        return None
    except Exception as error:
        logger.debug("no token of the rate limit %r: %s", ask.scope, error)
        run.finish()
        return _waits(ask, _WITHOUT_ANSWER * services.rng.uniform(0.2, 1.0))
    if grant.granted:
        return None
    run.finish()
    return DROPPED if rate.mode == "drop" else _waits(ask, grant.retry_in)


def _waits(ask: RateAsk, delay: timedelta) -> AttemptEnd:
    return AttemptEnd(cause=Cause.RATE_LIMITED, rate_limit=ask.scope, delay=delay)


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
