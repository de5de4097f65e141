"""Makes sure that each seeded handler has a job."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, InvalidInput, StorageError
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, seed_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.progress import JobState
from forge_jobs.policy.seeds import is_lost
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)

SEED_EVERY = timedelta(seconds=30)
"""Between two passes of a pod."""


class Seeding(Struct, frozen=True):
    """The result of one pass.

    :param enqueued: jobs that were not there
    :param requeued: jobs that were dead
    """

    enqueued: tuple[JobId, ...] = ()
    requeued: tuple[JobId, ...] = ()


def seeded(handlers: HandlerRegistry) -> Mapping[JobId, Handler[..., Any]]:
    """Return the handlers with a seed, by the ids of their jobs."""
    return {
        seed_job_id(handler.kind): handler
        for handler in handlers
        if handler.options.seed is not None
    }


async def seed_once(
    storage: Storage, client: JobClient, seeds: Mapping[JobId, Handler[..., Any]]
) -> Seeding:
    """Enqueue the seeded jobs that are not there, and requeue those that are dead.

    Every pod does so, at any time: one id makes one job, and a requeue changes dead jobs only. One
    read where all is well.

    :raises StorageError: the store does not answer. The next pass goes on
    """
    states = await storage.jobs.states(tuple(seeds))
    enqueued = [
        job_id
        for job_id, handler in seeds.items()
        if job_id not in states and await _enqueue(client, job_id, handler)
    ]
    dead = [each for each in states.values() if each.status is JobStatus.DEAD]
    requeued = await _requeue(storage, dead) if dead else ()
    return Seeding(tuple(enqueued), requeued)


async def _enqueue(client: JobClient, job_id: JobId, handler: Handler[..., Any]) -> bool:
    request = handler.request(**(handler.options.seed or {})).options(id=job_id)
    try:
        await client.enqueue(request)
    except Conflict:
        # A pod of another release was faster, with other options or arguments.
        return False
    except Exception as error:
        is_checked = isinstance(error, InvalidInput)
        if isinstance(error, StorageError) and not is_checked:
            raise
        # Of an enqueue middleware. Other seeds do not wait for that. The text of an exception may
        # hold a secret of the payload.
        is_shown = is_checked or not handler.options.secrets
        logger.warning(
            "seeded job %s of %s is not there, and is tried again: %s",
            job_id,
            handler.kind,
            error if is_shown else type(error).__name__,
        )
        return False
    logger.info("seeded job %s of %s was enqueued", job_id, handler.kind)
    return True


async def _requeue(storage: Storage, dead: Sequence[JobState]) -> tuple[JobId, ...]:
    jobs = await storage.jobs.get([each.id for each in dead])
    now = await storage.cron.now()
    lost = [
        job
        for job in jobs.values()
        if job.finished_at is not None and is_lost(job.status, job.cause, now - job.finished_at)
    ]
    if not lost:
        return ()
    # Only those that are dead still: another pod may have been faster, and the job may run.
    which = JobFilter(ids=tuple(job.id for job in lost), statuses=(JobStatus.DEAD,))
    changed = (await storage.jobs.requeue(which)).changed
    for job in lost:
        if job.id in changed:
            last = job.errors[-1].message if job.errors else str(job.cause)
            logger.warning("seeded job %s of %s was dead, requeued: %s", job.id, job.kind, last)
    return tuple(changed)
