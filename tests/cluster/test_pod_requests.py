"""Requests to real worker processes: under load, frozen, killed, and many."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.pod_requests import PodVerb, RequestState
from forge_jobs.model.processes import PodState
from forge_jobs.storage.protocols import Storage
from tests.support.factories import register
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, PodProcess
from tests.support.requests import answered, ask, over
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

JOBS = 60


async def pod_of(storage: Storage, process: PodProcess) -> PodState:
    """The pod of a process, once the pod is live."""

    async def look() -> PodState | None:
        for state in await storage.procs.pods():
            if state.pod.process_id == process.process_id and state.standing != "lost":
                return state
        return None

    found: PodState = await wait_until(look, description="the pod is live", timeout=100)
    return found


async def standing(storage: Storage, host_id: HostId) -> str:
    states = [each for each in await storage.procs.pods() if each.pod.host_id == host_id]
    return states[0].standing if states else "gone"


async def test_a_pod_is_quiet_and_resumes_under_load_and_no_job_is_lost(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    processes = [pods.start({"work": 4}) for _ in range(2)]
    quiet, other = [(await pod_of(storage, each)).pod.host_id for each in processes]
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.02}, queue="work")
    accepted = {one.job_id for one in await client.enqueue_many([request] * JOBS)}
    assert (await answered(storage, quiet, PodVerb.QUIET)).done

    async def is_idle() -> bool:
        states = {each.pod.host_id: each for each in await storage.procs.pods()}
        slots = states[quiet].slots["work"]
        return slots.grant == 0 and not states[quiet].in_progress.get("work")

    await wait_until(is_idle, description="the quiet pod has given its slots back", timeout=100)
    assert await standing(storage, quiet) == "quiet"
    more = {one.job_id for one in await client.enqueue_many([request] * JOBS)}
    await wait_until(
        lambda: Ledger.read(ledger).ended() >= accepted | more,
        description="the other pod does all of the work",
        timeout=100,
    )
    assert (await answered(storage, quiet, PodVerb.RESUME)).done

    async def shares() -> bool:
        states = {each.pod.host_id: each for each in await storage.procs.pods()}
        return states[quiet].slots["work"].grant == 2 == states[other].slots["work"].grant

    await wait_until(shares, description="the slots are shared again", timeout=100)
    assert not Ledger.read(ledger).repeated()


async def test_a_frozen_pod_is_unanswered_and_does_not_obey_when_it_thaws(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    process = pods.start({"work": 1})
    pod = (await pod_of(storage, process)).pod.host_id
    await process.freeze()
    # Where the lease has run out already, the pod cannot be asked any more.
    request = await ask(storage, pod, PodVerb.STOP)
    found = await over(storage, request)
    assert (found.state, found.heard_at) == (RequestState.UNANSWERED, None)
    process.send(signal.SIGCONT)
    outcome = await client.enqueue(
        EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0}, queue="work")
    )

    async def is_done() -> bool:
        job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
        return job.status is JobStatus.DONE

    await wait_until(is_done, description="the pod goes on", timeout=100)
    assert process.exit_code is None
    assert (await storage.procs.pod_request(request.id)).answered_at is None
    assert await standing(storage, pod) == "live"


async def test_a_pod_that_is_killed_between_hearing_and_answering_leaves_an_unanswered_request(
    storage: Storage, pods: Fleet, ledger: Path
) -> None:
    marker = str(ledger.with_name("died"))
    process = pods.start({"work": 1}, dies_at=("requests:read", 1, marker))
    pod = (await pod_of(storage, process)).pod.host_id

    async def dies() -> bool:
        if process.exit_code is None:
            await over(storage, await ask(storage, pod, PodVerb.STACKS))
        return process.exit_code is not None

    await wait_until(dies, description="the pod dies with the answer in hand", timeout=100)
    assert process.exit_code == -signal.SIGKILL
    newest = (await storage.procs.pod_requests(pod))[0]
    assert newest.heard_at is not None
    assert (await over(storage, newest)).state is RequestState.UNANSWERED


@pytest.mark.daily
async def test_of_a_hundred_pods_each_hears_of_its_own_request_alone(storage: Storage) -> None:
    leases = [await register(storage, lease_for=timedelta(hours=1)) for _ in range(100)]
    asked = {}
    for lease in leases[::2]:
        request = await storage.procs.ask_pod(lease.host_id, PodVerb.QUIET, request_id=new_job_id())
        asked[lease.host_id] = request.id
        # One after the other: a loaded machine may need longer for all than one request lasts.
        assert [each.id for each in await storage.procs.hear_requests(lease)] == [request.id]
    for lease in leases[1::2]:
        assert await storage.procs.hear_requests(lease) == []
    for lease in leases[::2]:
        assert await storage.procs.answer_request(lease, asked[lease.host_id], "quiet")
        [found] = await storage.procs.pod_requests(lease.host_id)
        assert found.state is RequestState.ANSWERED
