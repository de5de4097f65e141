"""The part of the job store that deals with one job, or few."""

from collections.abc import Sequence

from forge_jobs.model.edges import Kin, Relative, Tally, check_kin
from forge_jobs.model.edits import JobContent
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Job
from forge_jobs.model.queues import LinePlace
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.jobs import children, read
from forge_jobs.storage.redis.jobs.one.edit import edit
from forge_jobs.storage.redis.jobs.one.joining import await_also
from forge_jobs.storage.redis.jobs.one.kin import kin_of, with_parents
from forge_jobs.storage.redis.locators.late import LateLocators


class OneJobCalls:
    """A part of the methods of the job store. See ``JobStore``."""

    _database: Database
    _late_locators: LateLocators

    async def edit(
        self, job_id: JobId, *, token: int, before: JobContent, after: JobContent
    ) -> None:
        """See ``EditedStore``."""
        await edit(self._database, job_id, token, before, after)

    async def parents(self, ids: Sequence[JobId]) -> dict[JobId, tuple[JobId, ...]]:
        """See ``JobStore``."""
        return await children.parents_of(self._database, ids)

    async def kin(self, ids: Sequence[JobId], *, limit: int = 100) -> dict[JobId, Kin]:
        """See ``KinStore``."""
        check_kin(ids, limit)
        return await kin_of(self._database, ids, limit)

    async def with_parents(self, job_id: JobId) -> tuple[Job, tuple[Relative, ...]] | None:
        """See ``KinStore``."""
        return await with_parents(self._database, job_id, self._late_locators.queues)

    async def tallies(self, ids: Sequence[JobId]) -> dict[JobId, Tally]:
        """See ``KinStore``."""
        check_kin(ids, 1)
        return await children.tallies_of(self._database, ids)

    async def await_also(self, job_id: JobId, after: Sequence[After]) -> None:
        """See ``KinStore``."""
        await await_also(self._database, job_id, after)

    async def place(self, queue: str, job_id: JobId) -> LinePlace | None:
        """See ``WaitingStore``."""
        return await read.place(self._database, queue, job_id)
