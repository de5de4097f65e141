"""The part of the job store that deals with one job, or few."""

from collections.abc import Sequence

from forge_jobs.model.edges import Kin, Relative, Tally, check_kin
from forge_jobs.model.edits import JobContent
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Job
from forge_jobs.model.queues import LinePlace
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.jobs import children, read
from forge_jobs.storage.sql.jobs.one.edit import edit
from forge_jobs.storage.sql.jobs.one.joining import await_also
from forge_jobs.storage.sql.jobs.one.kin import kin_of, with_parents


class OneJobCalls:
    """A part of the methods of the job store. See ``JobStore``."""

    _database: Database

    async def edit(
        self, job_id: JobId, *, token: int, before: JobContent, after: JobContent
    ) -> None:
        """See ``EditedStore``."""
        await self._database.write(lambda tx: edit(tx, job_id, token, before, after), patient=False)

    async def parents(self, ids: Sequence[JobId]) -> dict[JobId, tuple[JobId, ...]]:
        """See ``JobStore``."""
        return await self._database.read(lambda tx: children.parents_of(tx, ids))

    async def kin(self, ids: Sequence[JobId], *, limit: int = 100) -> dict[JobId, Kin]:
        """See ``KinStore``."""
        check_kin(ids, limit)
        return await self._database.read(lambda tx: kin_of(tx, ids, limit))

    async def with_parents(self, job_id: JobId) -> tuple[Job, tuple[Relative, ...]] | None:
        """See ``KinStore``."""
        return await self._database.read(lambda tx: with_parents(tx, job_id))

    async def tallies(self, ids: Sequence[JobId]) -> dict[JobId, Tally]:
        """See ``KinStore``."""
        check_kin(ids, 1)
        return await self._database.read(lambda tx: children.tallies_of(tx, ids))

    async def await_also(self, job_id: JobId, after: Sequence[After]) -> None:
        """See ``KinStore``."""
        await self._database.write(lambda tx: await_also(tx, job_id, after), patient=False)

    async def place(self, queue: str, job_id: JobId) -> LinePlace | None:
        """See ``WaitingStore``."""
        return await self._database.read(lambda tx: read.place(tx, queue, job_id))
