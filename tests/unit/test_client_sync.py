"""The blocking twin: any thread, no event loop needed, nothing left behind."""

import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forge_jobs.clients.blocking import SyncJobClient
from forge_jobs.clients.bulk import BulkTotals
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput, JobCancelled, ResultTimeout, StorageError, Unavailable
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage

REQUEST = EnqueueRequest("mail.send", {"to": "me"})


def opens(folder: Path) -> Callable[[], Awaitable[Storage]]:
    return lambda: open_storage(f"sqlite:///{folder}/app.db")


def is_closed_cleanly(folder: Path) -> bool:
    """Return whether SQLite has removed its log, as it does when the last connection closes
    properly.
    """
    return (folder / "app.db").exists() and not (folder / "app.db-wal").exists()


def threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    # The threads that log belong to the process, not to a client.
    return [name for name in names if name == "forge-jobs-client"]


def test_a_program_without_an_event_loop_enqueues_looks_up_and_changes(tmp_path: Path) -> None:
    with SyncJobClient(opens(tmp_path)) as client:
        outcome = client.enqueue(REQUEST, delay=3600)
        many = client.enqueue_many([REQUEST, REQUEST])

        job = client.get(outcome.job_id)
        assert job is not None
        assert job.status is JobStatus.PENDING
        assert len(client.list(JobFilter(kinds=("mail.send",))).jobs) == 3
        assert client.explain(outcome.job_id).text
        assert client.run_now(outcome.job_id).changed == 1
        with pytest.raises(ResultTimeout):
            client.result(outcome.job_id, timeout=0)
        assert client.cancel(outcome.job_id) == BulkTotals(1, 0, {})
        with pytest.raises(JobCancelled):
            client.result(outcome.job_id, timeout=50)
        assert client.requeue([outcome.job_id]).changed == 1
        assert client.release_held(outcome.job_id).refused == {Refusal.WAITING: 1}
        assert client.delete([each.job_id for each in many]).changed == 2
    assert threads() == []
    assert is_closed_cleanly(tmp_path)


def test_threads_share_one_client(tmp_path: Path) -> None:
    with SyncJobClient(opens(tmp_path)) as client, ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: client.enqueue(REQUEST, unique_key="k"), range(64)))

        assert len({outcome.job_id for outcome in outcomes}) == 1
        assert sum(not outcome.deduplicated for outcome in outcomes) == 1


def test_errors_arrive_in_the_calling_thread(tmp_path: Path) -> None:
    with SyncJobClient(opens(tmp_path)) as client:
        with pytest.raises(InvalidInput, match="did you mean priority"):
            client.enqueue(REQUEST, priorty=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidInput, match="run_at"):
            client.enqueue_many([REQUEST, REQUEST.options(run_at="now")])  # type: ignore[arg-type]


def test_a_store_that_cannot_be_opened_is_reported_and_tried_again(tmp_path: Path) -> None:
    attempts: list[int] = []

    async def open_at_the_third_time() -> Storage:
        attempts.append(1)
        if len(attempts) < 3:
            raise Unavailable("not yet")
        return await opens(tmp_path)()

    with SyncJobClient(open_at_the_third_time) as client:
        for _ in range(2):
            with pytest.raises(Unavailable, match="not yet"):
                client.enqueue(REQUEST)
        assert threads() == []

        assert not client.enqueue(REQUEST).deduplicated


def test_a_closed_client_refuses_and_closing_twice_is_fine(tmp_path: Path) -> None:
    client = SyncJobClient(opens(tmp_path))
    client.enqueue(REQUEST)
    client.close()
    client.close()

    with pytest.raises(StorageError, match="closed"):
        client.enqueue(REQUEST)


@pytest.mark.anyio
async def test_the_twin_of_an_asynchronous_client_is_one_and_is_closed_with_it() -> None:
    async with await open_storage("sqlite:///:memory:") as storage:
        async with JobClient(storage) as client:
            outcome = client.sync.enqueue(REQUEST)
            assert client.sync is client.sync
            assert await client.get(outcome.job_id) is not None
        assert threads() == []
        with pytest.raises(StorageError, match="closed"):
            client.sync.enqueue(REQUEST)


FORGETFUL = """
import sys
from forge_jobs import EnqueueRequest, SyncJobClient, open_storage

client = SyncJobClient(lambda: open_storage(sys.argv[1]))
print(client.enqueue(EnqueueRequest("mail.send", queue="mail")).job_id)
"""


def test_a_program_that_forgets_to_close_ends_and_its_job_is_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"

    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL, url],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert finished.stderr == ""
    assert is_closed_cleanly(tmp_path)
    with SyncJobClient(opens(tmp_path)) as client:
        assert client.get(finished.stdout.strip()) is not None


FORKING = """
import os, sys
from forge_jobs import EnqueueRequest, SyncJobClient, open_storage

client = SyncJobClient(lambda: open_storage(sys.argv[1]))
client.enqueue(EnqueueRequest("of.parent"))
child = os.fork()
if child == 0:
    client.enqueue(EnqueueRequest("of.child"))
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.enqueue(EnqueueRequest("of.parent"))
client.close()
"""


def test_a_forked_child_gets_a_thread_and_connections_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"

    subprocess.run([sys.executable, "-c", FORKING, url], timeout=30, check=True)

    with SyncJobClient(opens(tmp_path)) as client:
        kinds = [job.kind for job in client.list().jobs]
    assert sorted(kinds) == ["of.child", "of.parent", "of.parent"]
