"""Has the store mend what lost writes have left, and says what that was."""

from forge_jobs.model.events import EventKind
from forge_jobs.model.sweeps import Swept
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import JobStore

logger = reporter(__name__)

SWEEP_LIMIT = 2_000
"""How many jobs one pass looks at."""

_NAMED = 10
"""How many jobs a line of the log names."""


async def sweep_once(jobs: JobStore, *, events: EventBuffer) -> Swept:
    """One pass; what it has mended is logged, and told on the timelines of the jobs."""
    swept = await jobs.sweep(SWEEP_LIMIT)
    for found, what in (
        (swept.told, "nobody would have told it how a parent ended"),
        (swept.located, "it could not be found by its id"),
    ):
        for one in found:
            events.record(EventKind.MENDED, queue=one.queue, job_id=one.job_id, detail=what)
        if found:
            named = ", ".join(one.job_id for one in found[:_NAMED])
            logger.warning(
                "mended %d jobs, among them %s: %s. The store has lost writes, as a failover to a "
                "replica that lags does",
                len(found),
                named,
                what,
            )
    if swept.queues:
        logger.warning(
            "listed again: the queues %s. They are used and were missing, after lost writes or as "
            "they were deleted beside a call under way",
            ", ".join(swept.queues),
        )
    if swept.forgotten:
        logger.info("took away %d ids of jobs that are not stored", swept.forgotten)
    return swept
