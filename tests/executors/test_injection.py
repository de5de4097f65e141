"""Injected parameters of handlers in processes: made, and cleaned up, in the child."""

from pathlib import Path
from typing import Any

import pytest

from forge_jobs import HandlerRegistry, Injected, JobClient, JobContext, RegistrationError, Shared
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support import injected_in_processes as jobs
from tests.support.runtimes import a_runtime, ended, job_because
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.any_store]

BOTH = pytest.mark.parametrize("handler", [jobs.plain, jobs.awaits], ids=["def", "async def"])


@pytest.fixture(autouse=True)
def _pool_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TEST_POOL", str(tmp_path / "pool"))


def lines(mark: Path) -> list[str]:
    return mark.read_text().splitlines() if mark.exists() else []


@pytest.mark.daily("async")
@BOTH
async def test_values_are_made_and_cleaned_up_in_the_child(
    storage: Storage, tmp_path: Path, handler: Any
) -> None:
    marks = [tmp_path / "first", tmp_path / "second"]
    async with a_runtime(storage, jobs.handlers).start() as handle:
        results = []
        for mark in marks:
            outcome = await handle.enqueue(handler.request(str(mark)))
            results.append(await handle.result(outcome, 60))
    for mark in marks:
        own = [line for line in lines(mark) if not line.startswith("middleware")]
        assert own == [
            *("loop 26", "call 26", "handler"),
            *("call ends by NoneType", "loop ends by NoneType"),
        ]
        assert lines(mark)[:2] == ["middleware", "loop 26"]
    assert [value for value, _ in results] == ["loop and call"] * 2
    # One value for all jobs of a process, closed when the process quits.
    assert len({pool for _, pool in results}) == 1
    assert lines(tmp_path / "pool") == [f"closes the {results[0][1]}"]


@pytest.mark.daily("loop-def", "handler-async")
@BOTH
@pytest.mark.parametrize("hangs", ["loop", "call", "handler"])
async def test_a_stop_reaches_the_code_wherever_it_is_and_cleans_up_once(
    storage: Storage, tmp_path: Path, handler: Any, hangs: str
) -> None:
    mark = tmp_path / "mark"
    begins = {"loop": "loop 26", "call": "call 26", "handler": "handler"}[hangs]
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(handler.request(str(mark), hangs))
        await wait_until(lambda: begins in lines(mark), description="the run hangs")
        await handle.cancel(outcome.job_id)
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    made = {"loop": [], "call": ["loop"], "handler": ["call", "loop"]}[hangs]
    said = [line for line in lines(mark) if " ends by " in line and "NoneType" not in line]
    assert said == [f"{each} ends by CancelledError" for each in (*made, "middleware")]
    assert ("handler" in lines(mark)) == (hangs == "handler")


@pytest.mark.daily("-def")
@BOTH
async def test_a_process_that_dies_in_a_factory_is_a_crash_of_that_job_alone(
    storage: Storage, tmp_path: Path, handler: Any
) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        dies = await handle.enqueue(handler.request(str(tmp_path / "dies"), "dies"))
        job = await job_because(storage, dies.job_id, Cause.CRASHED)
        lives = await handle.enqueue(handler.request(str(tmp_path / "lives")))
        [value, _] = await handle.result(lives, 60)
    assert (job.status, job.crashes) == (JobStatus.DEAD, 1)
    assert value == "loop and call"


def test_a_client_is_refused_because_a_process_has_none() -> None:
    def needs(client: JobClient) -> None: ...

    def takes(ctx: JobContext, client: JobClient = Injected) -> None: ...

    def shares(value: None = Shared(needs)) -> None: ...

    for function in (takes, shares):
        with pytest.raises(RegistrationError, match=r"a client is injected.* call ctx\.enqueue"):
            HandlerRegistry().register(function, "job", executor="process")
