"""The children of a pod: when they start, when they end, and what happens when none starts."""

import contextlib
import os
import shutil
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import psutil
import pytest

from forge_jobs import HandlerRegistry
from forge_jobs.errors import ConfigError, RegistrationError
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.outages import Pauses
from forge_jobs.runtime.executors import supply, warm
from forge_jobs.runtime.executors.guarded import GuardedProgram
from forge_jobs.runtime.executors.runner import registry_place
from forge_jobs.storage.protocols import Storage
from tests.executors.test_processes import gone, process_of, reason_in
from tests.runtime.test_stopping_a_handler import lose_claim
from tests.support import process_handlers as jobs
from tests.support.runtimes import a_runtime, ended, job_because, job_when
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

LIMITED = """#!/bin/sh
exec {wrapper} prlimit --nproc=1:1 {python} "$@"
"""
SLEEP = shutil.which("sleep") or "/bin/sleep"
AS_NOBODY = (
    "setpriv --reuid 65534 --clear-groups --inh-caps +dac_read_search,+dac_override "
    "--ambient-caps +dac_read_search,+dac_override"
)
"""The limit of processes does not hold for root."""


@pytest.fixture
def no_processes(tmp_path: Path) -> str:
    """An interpreter that may start, and may not fork."""
    script = tmp_path / "python"
    wrapper = AS_NOBODY if os.getuid() == 0 else ""
    script.write_text(LIMITED.format(wrapper=wrapper, python=sys.executable))
    script.chmod(0o755)
    return str(script)


async def test_a_lost_claim_stops_the_handler_and_writes_nothing(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.waits.request(str(mark)))
        await wait_until(lambda: process_of(mark), description="the handler runs")
        job = await job_when(storage, outcome.job_id, JobStatus.IN_PROGRESS)
        await storage.config.set_paused("default", True)
        await lose_claim(storage, job)
        await wait_until(
            lambda: handle.health().lost_claims == 1, description="the lost claim was counted"
        )
    assert reason_in(mark) == "lost"
    job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
    assert (job.status, job.cause) == (JobStatus.PENDING, Cause.CRASHED)
    assert [error.cause for error in job.errors if error.cause is not Cause.CRASHED] == []


@pytest.mark.any_store
async def test_children_start_when_needed_and_end_when_idle(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(warm, "_IDLE_FOR", 0.2)
    marks, gate = [tmp_path / "one", tmp_path / "two"], tmp_path / "gate"
    async with a_runtime(storage, jobs.handlers, workers=4).start() as handle:
        assert not _guardians()
        for mark in marks:
            await handle.enqueue(jobs.waits_for.request(str(mark), str(gate)))
        children = [
            await wait_until(partial(process_of, mark), description="the handler runs")
            for mark in marks
        ]
        assert len(_guardians()) == 2
        gate.touch()
        for child in children:
            await gone(child)
        await wait_until(lambda: not _guardians(), description="no guardian is left")


@pytest.mark.any_store
async def test_a_system_without_processes_costs_jobs_time_and_nothing_else(
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    no_processes: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(supply, "_PAUSES", Pauses(0.05, 30.0, jitter=0))
    async with a_runtime(storage, jobs.handlers).start() as handle:
        with monkeypatch.context() as limited:
            limited.setattr(sys, "executable", no_processes)
            outcome = await handle.enqueue(jobs.adds.request(1, 2))
            job = await job_because(storage, outcome.job_id, Cause.RELEASED)
            assert (job.status, job.attempt) == (JobStatus.PENDING, 0)
            [problem] = handle.health().problems
            assert problem.startswith("no process for handlers can be started: Resource temp")
            beside = await handle.enqueue(jobs.beside.request())
            assert await handle.result(beside.job_id, 60) == "beside"
            await wait_until(
                lambda: len(_refusals(caplog)) >= 3, description="three starts were refused"
            )
        assert (await handle.result(outcome.job_id, 60))[0] == 3
        assert not handle.health().problems
    words = ["for 0.1 s at least", "for 0.1 s at least", "for 0.2 s at least"]
    assert all(word in line for word, line in zip(words, _refusals(caplog), strict=False))


def _refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [each.getMessage() for each in caplog.records]
    return [line for line in lines if line.startswith("no process for handlers")]


@pytest.mark.any_store
async def test_a_child_that_cannot_import_the_registry_says_why(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = HandlerRegistry()
    module = types.ModuleType("only_in_this_process")
    module.__dict__["handlers"] = registry
    monkeypatch.setitem(sys.modules, module.__name__, module)

    @registry.job("lost", executor="process")
    def lost() -> None: ...

    async with a_runtime(storage, registry).start() as handle:
        outcome = await handle.enqueue(lost.request())
        job = await job_because(storage, outcome.job_id, Cause.RELEASED)
        [problem] = handle.health().problems
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)
    assert "could not load only_in_this_process:handlers" in problem
    assert "there is no module 'only_in_this_process' to import" in problem


@pytest.mark.any_store
async def test_a_guardian_that_is_killed_takes_the_child_along(
    storage: Storage, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.deaf.request(str(mark)), max_attempts=1)
        child = await wait_until(lambda: process_of(mark), description="the handler runs")
        [guardian] = _guardians()
        guardian.kill()
        job = await ended(storage, outcome.job_id)
        await gone(child)
    assert job.cause is Cause.CRASHED


async def test_a_guardian_without_a_pod_kills_its_program() -> None:
    program = GuardedProgram()
    await program.start([SLEEP, "600"])
    [guardian] = _guardians()
    [asleep] = guardian.children()
    assert program._transport is not None
    program._transport.abort()  # the end of the connection is all that a guardian hears of
    try:
        await wait_until(
            lambda: not asleep.is_running(), description="the program is gone", timeout=30
        )
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            asleep.kill()
    await program.ended


@pytest.mark.long
@pytest.mark.any_store
async def test_a_thousand_short_jobs_run_in_two_children(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers, workers=2).start() as handle:
        requests = [jobs.adds.request(number, 1) for number in range(1_000)]
        outcomes = await handle.enqueue_many(requests)
        results = [await handle.result(each.job_id, 200) for each in outcomes]
    assert [result[0] for result in results] == list(range(1, 1_001))
    assert len({result[1] for result in results}) <= 2


def test_a_registry_that_no_other_process_can_import_is_refused_in_words() -> None:
    registry = HandlerRegistry()
    registry.job("hidden", executor="process")(lambda: None)
    with pytest.raises(ConfigError, match="top level of a module that can be imported"):
        registry_place(registry)
    assert registry_place(jobs.handlers) == "tests.support.process_handlers:handlers"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "fork"}, "executor: is 'fork'; give 'thread' or 'process', or nothing"),
        ({"max_memory": 1}, 'max_memory: is given without a process; add executor="process"'),
        (
            {"max_runs_per_child": 5, "executor": "thread"},
            'max_runs_per_child: is given without a process; add executor="process"',
        ),
        ({"max_memory": 0, "executor": "process"}, "max_memory: is 0; give at least 1"),
        ({"max_memory": "1G", "executor": "process"}, "max_memory: is a str; give a whole number"),
    ],
)
def test_options_of_executors_are_checked(options: dict[str, object], words: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        HandlerRegistry().job("kind", **options)  # type: ignore[arg-type]
    assert words in str(refused.value)


def test_a_coroutine_function_is_refused_for_a_thread() -> None:
    async def handler() -> None: ...

    with pytest.raises(RegistrationError, match="executor='thread' is for plain functions"):
        HandlerRegistry().job("kind", executor="thread")(handler)


def test_a_pod_without_such_handlers_loads_nothing_of_processes(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from forge_jobs import HandlerRegistry, QueueRuntime, open_storage
handlers = HandlerRegistry()

@handlers.job("plain")
async def plain() -> str:
    return "ran"

async def main() -> None:
    async with await open_storage(sys.argv[1]) as storage:
        async with QueueRuntime(storage, handlers).with_queues("default").start() as handle:
            outcome = await handle.enqueue(plain.request())
            assert await handle.result(outcome.job_id, 60) == "ran"

asyncio.run(main())
print([name for name in sys.modules if name.startswith("forge_jobs.runtime.executors")])
"""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def _guardians() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if _is_guardian(each)]


def _is_guardian(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(
            part.endswith("executors/guardian.py") for part in process.cmdline()
        )
    except psutil.NoSuchProcess:
        return False  # ended while it was looked at, and may be a zombie
