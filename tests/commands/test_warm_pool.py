"""Programs that stay for many jobs: what crosses, and when a process is replaced."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from forge_jobs import Dead, Failed, HandlerRegistry, JobContext, Shared, Snoozed, WarmPool
from forge_jobs.errors import InvalidInput, RegistrationError
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing import fake_context
from tests.commands.test_orphans import orphan_of
from tests.executors.test_processes import gone, gone_unseen
from tests.support import speaker
from tests.support.commands import processes_below
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ARGV = [sys.executable, "-I", speaker.__file__]


@asynccontextmanager
async def a_pool(**options: Any) -> AsyncIterator[WarmPool]:
    """A pool that leaves nothing behind."""
    before = processes_below()
    async with WarmPool(ARGV, **options) as pool:
        yield pool
    await wait_until(lambda: processes_below() <= before, description="all processes end")


async def _asked(pool: WarmPool, **payload: object) -> Any:
    return await pool.call(fake_context(), payload)


def _handlers(mark: Path) -> HandlerRegistry:
    handlers = HandlerRegistry()

    async def speakers() -> AsyncIterator[WarmPool]:
        async with WarmPool(ARGV) as pool:
            yield pool

    @handlers.job("speak", max_attempts=1)
    async def speak(ctx: JobContext, how: dict[str, Any], pool: WarmPool = Shared(speakers)) -> Any:
        return await pool.call(ctx, how)

    return handlers


async def test_a_process_answers_one_job_after_another() -> None:
    async with a_pool() as pool:
        first = await _asked(pool, value="ü\n\u2028")
        second = await _asked(pool, value=[1])
    assert first[1:] == [1, "ü\n\u2028"]
    assert second == [first[0], 1, [1]]


async def test_no_process_of_a_pool_has_the_environment_of_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORGE_STORAGE_URL", "postgresql://user:password@db/jobs")
    before = processes_below()
    async with a_pool(environ={"TZ": "UTC"}) as pool:
        await _asked(pool)
        guardian_and_program = processes_below() - before
        environs = [psutil.Process(each).environ() for each in guardian_and_program]
    minimal = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
    assert environs == [minimal | {"TZ": "UTC"}] * 2


async def test_calls_at_once_get_a_process_each() -> None:
    async with a_pool() as pool:
        answers = await asyncio.gather(*(_asked(pool, value=n) for n in range(3)))
        assert [each[2] for each in answers] == [0, 1, 2]
        assert len({each[0] for each in answers}) == 3


async def test_large_payloads_and_results_cross() -> None:
    async with a_pool() as pool:
        assert (await _asked(pool, value="x" * 1_000_000))[2] == "x" * 1_000_000


async def test_progress_and_lines_reach_the_job() -> None:
    ctx = fake_context()
    async with a_pool() as pool:
        await pool.call(ctx, {"tells": True})
    assert ctx.progress.reports == [(1, 2, "half")]


async def test_an_error_is_a_failure_and_the_process_stays() -> None:
    async with a_pool() as pool:
        process = (await _asked(pool))[0]
        with pytest.raises(Failed, match="no such thing"):
            await _asked(pool, fails="no such thing")
        with pytest.raises(Dead, match="never"):
            await _asked(pool, fails="never", retry=False)
        assert (await _asked(pool))[0] == process


async def test_a_process_that_dies_fails_its_job_alone_and_is_replaced() -> None:
    async with a_pool() as pool:
        process = (await _asked(pool))[0]
        with pytest.raises(Failed, match="was killed by SIGKILL before the answer: my last words"):
            await _asked(pool, dies=True)
        assert (await _asked(pool))[0] != process


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        '{"result": 1}',
        '{"id": "another", "result": 1}',
        '{"id": 7, "result": 1}',
        "[" * 100_000,
        "x" * 3_000_000,
    ],
    ids=["text", "list", "no_id", "other_id", "number", "nested", "long"],
)
async def test_a_process_that_breaks_the_protocol_is_killed(line: str) -> None:
    async with a_pool() as pool:
        process = (await _asked(pool))[0]
        with pytest.raises(Failed, match="wrote "):
            await _asked(pool, says=line)
        assert (await _asked(pool))[0] != process


async def test_a_second_answer_is_never_the_answer_of_the_next_job() -> None:
    async with a_pool() as pool:
        process = (await _asked(pool, twice=True, value=1))[0]
        await gone(process)
        assert (await _asked(pool, value=2))[2] == 2


async def test_a_process_that_quits_after_its_answer_is_replaced() -> None:
    async with a_pool() as pool:
        process = (await _asked(pool, quits=True))[0]
        await gone(process)
        assert (await _asked(pool))[0] != process


async def test_a_process_that_has_quit_gets_no_job_even_before_the_event_loop_knows() -> None:
    async with a_pool() as pool:
        process = (await _asked(pool, quits=True))[0]
        gone_unseen(process)
        assert (await _asked(pool))[0] != process


async def test_a_process_is_replaced_after_so_many_runs() -> None:
    async with a_pool(max_runs=2) as pool:
        processes = [(await _asked(pool))[0] for _ in range(5)]
        assert processes[0] == processes[1]
        assert len(set(processes)) == 3


async def test_a_process_above_its_memory_is_killed() -> None:
    async with a_pool(max_memory=200 * 2**20) as pool:
        with pytest.raises(Failed, match=r"was killed, [0-9]+ MiB of memory were in use"):
            await _asked(pool, grows=True)


async def test_a_cancelled_call_ends_the_process_and_what_it_left_behind(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with a_pool() as pool:
        call = asyncio.ensure_future(_asked(pool, deaf=str(mark)))
        orphan = await orphan_of(mark)
        call.cancel()
        await wait_until(lambda: _cancelled_again(call), description="the call is over")
        assert call.cancelled()
        assert not psutil.pid_exists(orphan)
        assert (await _asked(pool, value=1))[2] == 1


def _cancelled_again(call: "asyncio.Future[Any]") -> bool:
    return call.done() or not call.cancel()


async def test_a_pool_of_handlers_is_shared_and_ends_with_the_pod(
    storage: Storage, tmp_path: Path
) -> None:
    before = processes_below()
    handlers = _handlers(tmp_path)
    speak = handlers.get("speak")
    assert speak is not None
    async with a_runtime(storage, handlers).start() as handle:
        outcomes = [await handle.enqueue(speak.request({"value": n})) for n in range(2)]
        results = [await handle.result(each.job_id, 60) for each in outcomes]
        assert results[0][0] == results[1][0]
        outcome = await handle.enqueue(speak.request({"dies": True}))
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.cause, job.crashes) == (JobStatus.DEAD, Cause.FAILED, 0)
    assert processes_below() <= before


async def test_a_timeout_and_a_stop_of_the_pod_end_every_process(
    storage: Storage, tmp_path: Path
) -> None:
    before = processes_below()
    marks = [tmp_path / "timeout", tmp_path / "stop"]
    handlers = _handlers(tmp_path)
    speak = handlers.get("speak")
    assert speak is not None
    async with a_runtime(storage, handlers).start() as handle:
        late = await handle.enqueue(speak.request({"deaf": str(marks[0])}), timeout=2)
        orphans = [await orphan_of(marks[0])]
        job = await ended(storage, late.job_id)
        assert not psutil.pid_exists(orphans[0])
        stopped = await handle.enqueue(speak.request({"deaf": str(marks[1])}))
        orphans.append(await orphan_of(marks[1]))
        report = await handle.stop(0.4)
    assert job.cause is Cause.TIMED_OUT
    assert report.is_clean
    assert not psutil.pid_exists(orphans[1])
    assert processes_below() <= before
    job = (await storage.jobs.get([stopped.job_id]))[stopped.job_id]
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)


async def test_a_full_system_hands_the_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    async with a_pool() as pool:
        with monkeypatch.context() as limited:
            limited.setattr("forge_jobs.commands.speaking.os.pipe", full)
            with pytest.raises(Snoozed):
                await _asked(pool)
        assert (await _asked(pool, value=1))[2] == 1


async def test_misuse_is_refused_in_words(tmp_path: Path) -> None:
    for argv, words in ((["no-such"], "absolute path"), ([], "give a list"), ("ls", "give a list")):
        with pytest.raises(RegistrationError, match=words):
            WarmPool(argv)
    with pytest.raises(RegistrationError, match="there is no such folder"):
        WarmPool(ARGV, folder=tmp_path / "missing")
    with pytest.raises(RegistrationError, match="max_runs is 0"):
        WarmPool(ARGV, max_runs=0)
    with pytest.raises(RuntimeError, match="is not open"):
        await _asked(WarmPool(ARGV))
    async with a_pool() as pool:
        with pytest.raises(InvalidInput, match="payload: is no JSON"):
            await _asked(pool, value=object())
        assert (await _asked(pool, value=1))[2] == 1
