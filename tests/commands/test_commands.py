"""``cmd_exec`` and ``noop_echo``: what runs, what is kept, and what an end means for the job."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from forge_jobs import Fixed, HandlerRegistry, Program, command_handlers, echo_handlers
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing import run_inline
from tests.support.commands import PYTHON, command, python, python_commands
from tests.support.runtimes import a_runtime, ended, job_because, job_when
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SAYS_ALL = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), sys.stdin.read(),
    sorted(os.listdir("/proc/self/fd"), key=int)]))
print("beside", file=sys.stderr)
"""


async def _run(storage: Storage, handlers: HandlerRegistry, *argv: str, cwd: str = "") -> Job:
    async with a_runtime(storage, handlers).start() as handle:
        return await ended(storage, (await handle.enqueue(command(*argv, cwd=cwd))).job_id)


async def test_a_command_gets_its_arguments_and_nothing_of_the_worker(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_STORAGE_URL", "postgresql://user:password@db/jobs")
    (tmp_path / "below").mkdir()
    program = Program(sys.executable, arguments=[".*"], anywhere=True, environ={"TZ": "UTC"})
    handlers = python_commands(tmp_path, programs={"py": program})
    told, inherited = os.pipe()
    os.set_inheritable(inherited, True)
    try:
        odd = ["a b", "$(id)", "`id`", "*", "; rm -rf x", "'", "ü"]
        job = await _run(storage, handlers, "py", "-I", "-c", SAYS_ALL, *odd, cwd="below")
    finally:
        os.close(told)
        os.close(inherited)
    assert job.status is JobStatus.DONE
    result = json.loads(job.result or "")
    arguments, folder, environ, stdin, descriptors = json.loads(result.pop("stdout"))
    assert arguments == odd
    assert folder == str(tmp_path / "below")
    minimal = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
    assert environ == minimal | {"TZ": "UTC"}
    assert stdin == ""
    assert descriptors == ["0", "1", "2", "3"], "the last one lists the folder"
    assert (result["exit_code"], result["stderr"], result["stderr_bytes"]) == (0, "beside\n", 7)


@pytest.mark.any_store
async def test_what_is_not_allowed_is_dead_before_a_process_starts(
    storage: Storage, tmp_path: Path
) -> None:
    handlers = command_handlers(
        {"python": Program(sys.executable, arguments=["-V"])}, folder=tmp_path, timeout=60
    )
    for argv in (["sh", "-c", "id"], ["python", "-c", "1"], ["python", "../x"], []):
        job = await _run(storage, handlers, *argv)
        assert (job.status, job.cause, job.attempt) == (JobStatus.DEAD, Cause.REJECTED, 1)
        assert job.errors[0].message.startswith("not allowed: argv[")
    job = await _run(storage, handlers, "python", cwd="..")
    assert "cwd: is '..', which leaves the folder" in job.errors[0].message


@pytest.mark.any_store
@pytest.mark.parametrize(
    ("code", "status", "cause", "words"),
    [
        ("raise SystemExit(4)", JobStatus.DONE, Cause.SUCCEEDED, ""),
        ("raise SystemExit(75)", JobStatus.FAILED, Cause.FAILED, "py ended with exit code 75"),
        ("import sys; sys.exit('odd')", JobStatus.DEAD, Cause.REJECTED, "exit code 1: odd"),
        ("import os; os.kill(os.getpid(), 9)", JobStatus.FAILED, Cause.FAILED, "by SIGKILL"),
        ("taken = b'x' * 2**28", JobStatus.FAILED, Cause.FAILED, "max_memory is 128 MiB"),
    ],
)
async def test_exit_codes_say_what_becomes_of_the_job(
    storage: Storage, tmp_path: Path, code: str, status: JobStatus, cause: Cause, words: str
) -> None:
    program = Program(
        sys.executable,
        arguments=[".*"],
        anywhere=True,
        success=[0, 4],
        retried=[75],
        max_memory=128 * 2**20,
    )
    if "taken" in code:
        code += "; import time; time.sleep(600)"
    handlers = python_commands(
        tmp_path, programs={"py": program}, max_attempts=3, retry=Fixed(3600)
    )
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(python(code))
        job = await job_when(
            storage, outcome.job_id, JobStatus.DONE, JobStatus.FAILED, JobStatus.DEAD
        )
    assert (job.status, job.cause, job.attempt, job.crashes) == (status, cause, 1, 0)
    assert words in (job.errors[0].message if job.errors else "")


async def test_long_output_keeps_both_ends_and_says_what_is_left_out(
    storage: Storage, tmp_path: Path
) -> None:
    code = (
        "import sys; sys.stdout.buffer.write(b'begin' + b'\\0\\xff' * 500_000 + b'end'); "
        "print('short', file=sys.stderr)"
    )
    handlers = python_commands(tmp_path, max_output=100)
    job = await _run(storage, handlers, "py", "-I", "-c", code)
    result = json.loads(job.result or "")
    assert result["stdout"].startswith("begin")
    assert result["stdout"].endswith("end")
    assert "\n[... 999,908 bytes left out ...]\n" in result["stdout"]
    assert (result["stdout_bytes"], result["stderr"]) == (1_000_008, "short\n")


async def test_the_largest_output_fits_into_a_result(storage: Storage, tmp_path: Path) -> None:
    code = "import sys; [each.write('\\x01' * 200_000) for each in (sys.stdout, sys.stderr)]"
    job = await _run(storage, python_commands(tmp_path, max_output=80 * 1024), "py", "-c", code)
    assert not job.errors
    assert json.loads(job.result or "")["stderr_bytes"] == 200_000


async def test_a_program_that_writes_without_end_leaves_the_event_loop_to_others(
    tmp_path: Path,
) -> None:
    handlers = python_commands(tmp_path, programs={"yes": Program("yes")}, timeout=1)
    cmd_exec = handlers.get("cmd_exec")
    assert cmd_exec is not None
    loop = asyncio.get_running_loop()
    turns, ended = 0, False

    def count() -> None:
        nonlocal turns
        turns += 1
        if not ended:
            loop.call_soon(count)

    count()
    with pytest.raises(Exception, match="did not end within 0:00:01"):
        await run_inline(cmd_exec, ["yes"])
    ended = True
    assert turns > 20, "of thousands"


async def test_a_job_may_ask_for_less_time_and_not_for_more(
    storage: Storage, tmp_path: Path
) -> None:
    handlers = python_commands(tmp_path, timeout=0.3)
    code = "import time; time.sleep(20)"
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(python(code))
        job = await ended(storage, outcome.job_id)
        assert job.cause is Cause.TIMED_OUT
        outcome = await handle.enqueue(python(code), timeout=600)
        job = await ended(storage, outcome.job_id)
    assert job.cause is Cause.FAILED
    assert "py did not end within 0:00:00.300000, the most that" in job.errors[0].message


@pytest.mark.any_store
async def test_a_program_that_is_gone_fails_and_a_full_system_hands_back(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, folder = tmp_path / "program", tmp_path / "folder"
    folder.mkdir()
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    handlers = python_commands(folder, programs={"odd": Program(program)})
    job = await _run(storage, handlers, "odd")
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED)
    assert "odd could not be started: No such file or directory" in job.errors[0].message

    def full() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    async with a_runtime(storage, handlers).start() as handle:
        with monkeypatch.context() as limited:
            limited.setattr("forge_jobs.commands.output.os.pipe", full)
            outcome = await handle.enqueue(command("true"))
            job = await job_because(storage, outcome.job_id, Cause.SNOOZED)
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)


async def test_a_program_that_is_cancelled_may_clean_up(storage: Storage, tmp_path: Path) -> None:
    code = (
        "import pathlib, signal, sys, time\n"
        "def clean(*_): pathlib.Path('cleaned').touch(); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, clean)\n"
        "pathlib.Path('mark').touch()\n"
        "time.sleep(600)"
    )
    async with a_runtime(storage, python_commands(tmp_path)).start() as handle:
        outcome = await handle.enqueue(python(code))
        await wait_until((tmp_path / "mark").exists, description="the program runs")
        await handle.cancel(outcome.job_id)
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.errors) == (JobStatus.CANCELLED, ())
    assert (tmp_path / "cleaned").exists()


async def test_noop_echo_returns_what_it_is_given(storage: Storage) -> None:
    handlers = HandlerRegistry()
    handlers.include(echo_handlers())
    handlers.include(echo_handlers("echo.other"))
    [echo, other] = handlers
    assert (echo.kind, other.kind) == ("noop_echo", "echo.other")
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(echo.request({"a": [1, None]}))
        assert await handle.result(outcome.job_id, 60) == {"a": [1, None]}


def test_a_program_is_shown_with_all_that_is_allowed() -> None:
    assert repr(PYTHON).startswith(f"Program({sys.executable}, .*, anywhere=True")
