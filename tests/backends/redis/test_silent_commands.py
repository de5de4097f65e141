"""A cluster of which one server is dead or frozen: what the command line says before a change."""

from functools import partial

import anyio
import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from tests.cli.conftest import CommandLine
from tests.support.factories import new_job
from tests.support.shards import FAULTS, NAMES, Shards, url_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]

BY_COUNTS = ("--all",)
BY_LIST = ("--tag", "a", "--all-matching")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("which", [BY_COUNTS, BY_LIST], ids=["counts", "list"])
async def test_no_consent_is_asked_for_a_change_that_a_silent_server_would_refuse(
    shards: Shards, fault: str, which: tuple[str, ...]
) -> None:
    storage = shards.storage
    await storage.jobs.enqueue([new_job(queue=name, tags=("a",)) for name in NAMES])
    forge = CommandLine(url_of(shards.cluster))
    with shards.down(fault):
        refused = await anyio.to_thread.run_sync(
            partial(forge.refuse, "jobs", "cancel", *which, code=1, stdin="y\n")
        )
        assert f"the server of {len(shards.lost)} of the queues does not answer" in refused
        assert sorted(shards.lost)[0] in refused
        assert "--queue" in refused
        healthy = ("--queue", shards.healthy[0], "--all-matching")
        done = await anyio.to_thread.run_sync(partial(forge, "jobs", "cancel", *healthy, "--yes"))
        assert "cancel: 1 job" in done.stderr
        assert done.stdout == "1 cancelled\n"
    cancelled = await storage.jobs.list(JobFilter(statuses=(JobStatus.CANCELLED,)))
    assert [job.queue for job in cancelled.jobs] == [shards.healthy[0]]
