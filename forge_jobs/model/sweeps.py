"""Results of a sweep, which mends what lost writes have left."""

from msgspec import Struct

from forge_jobs.model.ids import JobId


class Mended(Struct, frozen=True):
    """A job that was mended."""

    queue: str
    job_id: JobId


class Swept(Struct, frozen=True, kw_only=True):
    """The repairs of one call of ``JobStore.sweep``.

    :param notified: blocked jobs that would never have learned of the end of a parent. They know
        now, or their parent notes them again
    :param located: jobs that were stored and could not be found by their ids
    :param queues: queues with jobs that were not listed as queues any more
    :param forgotten: how many ids were noted as stored whose jobs are not there
    :param orphaned: how many jobs were gone while their progress, log lines, checkpoint or steps
        were still there. These are gone too now
    :param moved: how many records were looked at to bring them to the newest layout. While there
        are any the next call should come soon
    """

    notified: tuple[Mended, ...] = ()
    located: tuple[Mended, ...] = ()
    queues: tuple[str, ...] = ()
    forgotten: int = 0
    orphaned: int = 0
    moved: int = 0
