"""The part of the job store that tells what jobs come before and after."""

from collections.abc import Sequence
from typing import Protocol

from forge_jobs.model.edges import Kin, Tally
from forge_jobs.model.ids import JobId


class KinStore(Protocol):
    """Reads of the edges between jobs."""

    async def kin(self, ids: Sequence[JobId], *, limit: int = 100) -> dict[JobId, Kin]:
        """Return the parents and children of each of ``ids`` that is stored, with their states.

        In id order, at most ``limit`` in each direction. ``Kin.more_parents`` and
        ``Kin.more_children`` say when there are more. A parent that was removed is there without a
        status, for as long as the child is stored. A child that was removed is not.

        The states are read one after the other, so a job that ends meanwhile may be seen before and
        another one after that end.

        :param ids: at most ``MOST_ASKED``
        :param limit: 1 to ``MOST_KIN``, of a single job to ``MOST_OF_ONE``
        :raises InvalidInput: too many jobs, or a limit out of bounds
        :raises PartlyUnavailable: part of the store is silent. The error has the jobs of which all
            relatives answer
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
