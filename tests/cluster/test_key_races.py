"""Sixteen processes ask for one key in each mode, some are killed, and a pod runs the jobs."""

import asyncio
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from forge_jobs import Conflict, HandlerRegistry, JobClient, JobFilter, JobStatus, Unique
from forge_jobs.model.jobs import ACTIVE
from forge_jobs.model.unique.keys import FOLLOWING, WITH_WINDOW, UniqueMode
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.keyed import MODES
from tests.support.pods import forkserver
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

PROCESSES, KILLED, TURNS = 16, 4, 10
Told = tuple[str, str, str]
"""The mode, the word for the outcome, and the job."""

handlers = HandlerRegistry()
running: Counter[str] = Counter()
most: Counter[str] = Counter()
ran: dict[str, list[str]] = {mode: [] for mode in MODES}


@handlers.job("work")
async def work(mode: str, asked: str) -> None:
    running[mode] += 1
    most[mode] = max(most[mode], running[mode])
    await anyio.lowlevel.checkpoint()
    ran[mode].append(asked)
    running[mode] -= 1


def unique(mode: UniqueMode) -> Unique:
    window = None if mode not in WITH_WINDOW else 600 if mode == "cooldown" else 0.05
    return Unique(mode, mode, window)


def produce(url: str, number: int, told: Connection) -> None:
    asyncio.run(_produce(url, number, told))


async def _produce(url: str, number: int, told: Connection) -> None:
    async with await open_storage(url) as storage, JobClient(storage, handlers) as client:
        for turn in range(TURNS):
            for mode in MODES:
                request = work.request(mode, f"{number} {turn}")
                with suppress(Conflict):
                    outcome = await client.enqueue(request, unique=unique(mode))
                    word = "dropped" if outcome.deduplicated else "replaced"
                    stored = not (outcome.deduplicated or outcome.replaced)
                    told.send((mode, "stored" if stored else word, outcome.job_id))


@pytest.mark.parametrize("backend", sorted(BACKENDS), indirect=True)
async def test_sixteen_processes_on_one_key_in_each_mode(url: str, storage: Storage) -> None:
    running.clear()
    most.clear()
    for mode in MODES:
        ran[mode].clear()
    pipes = [forkserver.Pipe(duplex=False) for _ in range(PROCESSES)]
    processes = [
        forkserver.Process(target=produce, args=(url, number, told), daemon=True)
        for number, (_, told) in enumerate(pipes)
    ]
    async with a_runtime(storage, handlers, workers=8).start():
        for process, (_, told) in zip(processes, pipes, strict=True):
            process.start()
            told.close()
        found = await _all_told(processes, [reader for reader, _ in pipes])

        async def is_idle() -> bool:
            page = await storage.jobs.list(JobFilter(statuses=tuple(ACTIVE)))
            return not page.jobs

        await wait_until(is_idle, description="all jobs have ended")
    assert set(most.values()) == {1}, "two jobs with one key ran at once"
    jobs = (await storage.jobs.list(JobFilter(), limit=1_000)).jobs
    assert {job.status for job in jobs} == {JobStatus.DONE}
    assert {job_id for *_, job_id in found} <= {job.id for job in jobs}
    assert sum(map(len, ran.values())) == len(jobs)
    for each, possible in _WORDS.items():
        words = {word for of, word, _ in found if of == each}
        assert words <= possible, f"{each}: {words}"
    assert len(ran["cooldown"]) == 1
    for each in FOLLOWING:
        # The request that came last of all is the last one of its process, or of a killed one.
        number, turn = map(int, ran[each][-1].split())
        assert turn == TURNS - 1 or number < KILLED


_WORDS = {
    "keep": {"stored", "dropped"},
    "error": {"stored"},
    "cooldown": {"stored", "dropped"},
    "replace": {"stored", "dropped", "replaced"},
    "debounce": {"stored", "replaced"},
    "keep-last": {"stored", "replaced"},
}


async def _all_told(processes: list[ForkServerProcess], told: list[Connection]) -> list[Told]:
    """Read the outcomes until all processes have ended, and kill the first ones half-way."""
    found: list[Told] = []
    doomed = processes[:KILLED]
    while told:
        ready = set(await anyio.to_thread.run_sync(wait, told))
        for reader in [each for each in told if each in ready]:
            try:
                found.append(reader.recv())
            except (EOFError, OSError):
                told.remove(reader)
        if doomed and len(found) > PROCESSES * TURNS:
            doomed.pop().kill()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes[KILLED:]] == [0] * (PROCESSES - KILLED)
    return found
