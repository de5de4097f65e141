"""The part of the job store that tells what jobs come before and after."""

from collections.abc import Sequence
from typing import Protocol

from forge_jobs.model.edges import Kin, Relative, Tally
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Job


class KinStore(Protocol):
    """Reads of the edges between jobs."""

    async def kin(self, ids: Sequence[JobId], *, limit: int = 100) -> dict[JobId, Kin]:
        """Return the parents and children of each of ``ids`` that is stored, with their states.

        In id order, at most ``limit`` in each direction. ``Kin.more_parents`` and
        ``Kin.more_children`` say when there are more. A parent that was removed is there without a
        status, for as long as the child is stored. A child that was removed is not.

        SQL reads all in one statement. Redis reads queue by queue, so a job that ends meanwhile may
        be seen before and another one after that end.

        A job that is stored again under the id of a removed one may be without the children of the
        removed one: SQL lists all of them, Redis those that were requeued since. Redis also leaves
        out children that programs of release 0.1 stored, until they are requeued. Where many
        children of one job were removed it looks at ``10 * limit`` of them, and may list fewer than
        ``limit`` with ``more_children``.

        :param ids: at most ``MOST_ASKED``
        :param limit: 1 to ``MOST_KIN``, of a single job to ``MOST_OF_ONE``
        :raises InvalidInput: too many jobs, or a limit out of bounds
        :raises PartlyUnavailable: part of the store is silent. The error has the jobs of which all
            relatives answer
        """
        ...

    async def with_parents(self, job_id: JobId) -> tuple[Job, tuple[Relative, ...]] | None:
        """Return the job, whole, and its parents with their states, in id order. None: no such job.

        The first ``MOST_OF_ONE`` parents. A parent that was removed is there without a status.

        SQL reads all in one statement. Redis reads the job with its edges in one step, and then the
        states of the parents, queue by queue.

        :raises PartlyUnavailable: part of the store is silent, and has the job or a parent
        """
        ...

    async def tallies(self, ids: Sequence[JobId]) -> dict[JobId, Tally]:
        """Return how many parents of each of ``ids`` are in each state, also parents that were
        removed.

        Without jobs that come after none, or are not stored. One look at the edges of the job, not
        at the parents.

        :param ids: at most ``MOST_ASKED``
        :raises InvalidInput: too many jobs
        :raises PartlyUnavailable: part of the store is silent. The error has the rest
        """
        ...

    async def await_also(self, job_id: JobId, after: Sequence[After]) -> None:
        """Let a blocked job wait for further jobs, also jobs that have ended: their edges settle by
        a handover at once. Parents that the job has already stay as they are.

        SQL does all or nothing. Redis adds the edges by 400, so a caller that dies in between
        leaves some, which a repeat completes. No edge that was added is lost: see :meth:`sweep`.

        :param after: different parents, none of them the job itself
        :raises NotFound: the job, or a parent, is not stored
        :raises Conflict: the job does not wait for others any more
        :raises Locked: a caller's open transaction holds one of the jobs
        """
        ...
