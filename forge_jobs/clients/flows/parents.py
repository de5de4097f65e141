"""The jobs that a job was enqueued after, for the handler that goes on with their results."""

from typing import Any

from msgspec import Struct, structs

from forge_jobs.clients.results import read_result
from forge_jobs.errors import NotFound
from forge_jobs.model.edges import GROUP_KIND, STEP
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ErrorRecord, Job, JobStatus
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import JobStore

_AT_ONCE = 50
"""Parents that one call reads. Each may bring a result of a megabyte."""


class Parent(Struct, frozen=True):
    """A parent as stored at the time of reading. See ``handlers.context.ParentJob``."""

    job_id: JobId
    job: Job | None
    encryption: Encryption | None = None
    group: JobId | None = None
    step_of_group: str = ""

    @property
    def kind(self) -> str:
        return "" if self.job is None else self.job.kind

    @property
    def status(self) -> JobStatus | None:
        return None if self.job is None else self.job.status

    @property
    def step(self) -> str:
        # Of a member also when that job has been removed.
        if self.job is None or self.step_of_group:
            return self.step_of_group
        return self.job.metadata.get(STEP, "")

    @property
    def error(self) -> ErrorRecord | None:
        return self.job.errors[-1] if self.job is not None and self.job.errors else None

    def result(self, type: Any = Any) -> Any:
        if self.job is None:
            raise NotFound(
                f"parent job {self.job_id} has been removed, and its result with it; give done "
                "jobs a longer retention"
            )
        if self.job.status is JobStatus.DONE and not self.job.keep_result:
            raise NotFound(
                f"parent job {self.job_id} ({self.kind}) keeps no result; enqueue such jobs with "
                "keep_result=True where others read their results"
            )
        return read_result(self.job, self.encryption, type)


async def parents_of(
    jobs: JobStore, job_id: JobId, encryption: Encryption | None
) -> tuple[Parent, ...]:
    """Read the parents of a job, in the order of their ids. In place of a group its members."""
    parents = await _read_parents(jobs, job_id, encryption)
    found: list[Parent] = []
    for each in parents:
        if each.kind == GROUP_KIND:
            members = await _read_parents(jobs, each.job_id, encryption)
            of = {"group": each.job_id, "step_of_group": each.step}
            found += (structs.replace(member, **of) for member in members)
        else:
            found.append(each)
    return tuple(found)


async def _read_parents(
    jobs: JobStore, job_id: JobId, encryption: Encryption | None
) -> tuple[Parent, ...]:
    ids = (await jobs.parents([job_id])).get(job_id, ())
    found: dict[JobId, Job] = {}
    for start in range(0, len(ids), _AT_ONCE):
        found |= await jobs.get(ids[start : start + _AT_ONCE])
    return tuple(Parent(parent, found.get(parent), encryption) for parent in ids)
