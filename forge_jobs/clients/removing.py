"""All jobs of queues go: for programs that had queues of their own for a while."""

from collections.abc import Sequence

from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.protocols import Storage


async def remove_jobs(storage: Storage, queues: Sequence[str]) -> None:
    """Cancel and delete the jobs of queues, in batches. Running ones stay."""
    which = JobFilter(queues=tuple(queues))
    for remove in (storage.jobs.cancel, storage.jobs.delete):
        cursor: str | None = None
        while True:
            cursor = (await remove(which, cursor=cursor)).cursor
            if cursor is None:
                break
