"""A process dies between the parts of a large workflow. Reads say so, a repeat completes."""

import multiprocessing
import signal
from pathlib import Path

import anyio
import pytest

from forge_jobs import EnqueueRequest, JobClient, Workflow, open_storage
from forge_jobs.errors import NotFound
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.operator import Operator
from tests.support.backends import BACKENDS, forget, url_of
from tests.support.points import die_at
from tests.web.conftest import ADA

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

forkserver = multiprocessing.get_context("forkserver")
STEPS = 450


def large(workflow_id: str) -> Workflow:
    workflow = Workflow("large", id=workflow_id)
    for number in range(STEPS):
        workflow.step(f"step {number}", EnqueueRequest("tests.noop", {"n": number}, queue="q"))
    return workflow


def _enqueue(url: str, workflow_id: str, visit: int, marker: str) -> None:
    die_at("enqueue:committed", visit, Path(marker))
    anyio.run(_run, url, workflow_id)


async def _run(url: str, workflow_id: str) -> None:
    async with await open_storage(url) as storage, JobClient(storage) as client:
        await client.enqueue_workflow(large(workflow_id))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("visit", [1, 2, 3])
async def test_a_dead_caller_leaves_a_part_that_reads_name_and_a_repeat_completes(
    backend: str, visit: int, tmp_path: Path
) -> None:
    url, workflow_id = await url_of(backend, tmp_path), new_job_id()
    async with await open_storage(url) as storage, JobClient(storage) as client:
        args = (url, workflow_id, visit, str(tmp_path / "died"))
        process = forkserver.Process(target=_enqueue, args=args)
        process.start()
        await anyio.to_thread.run_sync(process.join)
        assert process.exitcode == -signal.SIGKILL
        pending = (await storage.jobs.counts())["q"].by_status[JobStatus.PENDING]
        assert pending == min(200 * visit, STEPS)
        if visit < 3:
            with pytest.raises(NotFound, match="stored in part"):
                await client.workflow(workflow_id)
            with pytest.raises(NotFound, match="stored in part"):
                await client.cancel_workflow(workflow_id)
            async with Operator(storage, ADA) as operator:
                with pytest.raises(NotFound, match="stored in part"):
                    await operator.get_workflow(workflow_id)
        await client.enqueue_workflow(large(workflow_id))
        state = await client.workflow(workflow_id)
        assert (state.total, state.waiting, state.status) == (STEPS, STEPS, JobStatus.BLOCKED)
        counts = (await storage.jobs.counts())["q"].by_status
        assert (counts[JobStatus.PENDING], counts[JobStatus.BLOCKED]) == (STEPS, 1)
        with pytest.raises(NotFound, match="there is no workflow"):
            await client.workflow(new_job_id())
    await forget(backend, tmp_path)
