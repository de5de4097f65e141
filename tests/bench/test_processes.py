"""The processes of a bench: a failure is reported, and is not taken for a figure."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from bench.children import Child, ChildFailed
from bench.ours import Ours
from bench.runs import Runner
from bench.side import JOBS_PER_CALL, Work
from bench.stores import SqliteStore
from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.model.filters import JobFilter
from tests.bench.sides import Broken, Complete, Quick

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.long]


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path)


async def test_a_drain_of_ours_counts_what_is_stored_and_what_it_cost(store: SqliteStore) -> None:
    run = await Runner(store, Ours).drain(200, 10, counted=True, count_batches=True)

    assert run.value > 0
    assert run.costs["statements per job"] > 0
    assert run.costs["worker CPU, us/job"] > 0
    assert 1 <= run.costs[JOBS_PER_CALL] <= 200


async def test_two_processes_drain_one_store(store: SqliteStore) -> None:
    run = await Runner(store, Ours).drain(200, 10, 2)

    assert run.value > 0


async def test_due_schedules_are_drained_with_their_jobs(store: SqliteStore) -> None:
    run = await Runner(store, Ours).drain(0, 10, schedules=5, due=True)

    assert run.value > 0


async def test_a_pickup_is_measured_in_one_process_and_from_another(store: SqliteStore) -> None:
    runner = Runner(store, Ours)

    for median, tail in (await runner.pickup(5), await runner.pickup_from_another(5)):
        assert 0 < median.value <= tail.value


async def test_a_side_that_ran_nothing_has_no_figure(store: SqliteStore) -> None:
    with pytest.raises(ValueError, match="0 of 10 jobs ran"):
        await Runner(store, Quick).drain(10, 1)

    assert (await Runner(store, Complete).drain(10, 1)).value > 0


async def test_a_side_that_fails_says_why(store: SqliteStore) -> None:
    with pytest.raises(ChildFailed, match=r"(?s)Broken as fill.*standard error.*no such table"):
        await Runner(store, Broken).drain(10, 1)


async def test_a_side_that_never_ends_is_given_up(store: SqliteStore) -> None:
    work = Work(side="tests.bench.sides:Silent", url=await store.fresh(), role="drain", jobs=1)

    async with Child(work) as child:
        child.go()
        with pytest.raises(ChildFailed, match=r"no 'result' in 0.1 s"):
            await child.next_report("result", 0.1)


async def test_a_process_that_has_ended_fails_when_it_is_heard_not_when_it_is_spoken_to(
    store: SqliteStore,
) -> None:
    work = Work(side="tests.bench.sides:Silent", url=await store.fresh(), role="drain", jobs=1)

    async def spoken_to() -> None:
        async with Child(work) as child:
            child._process.kill()
            await child._process.wait()
            child.go()
            with pytest.raises(ChildFailed, match="ended before 'result'"):
                await child.next_report("result")

    # On the event loop of a bench, which refuses what asyncio's drops.
    await asyncio.to_thread(uvloop.run, spoken_to())


async def test_a_library_without_a_call_for_many_jobs_enqueues_them_one_by_one(
    store: SqliteStore,
) -> None:
    for side, jobs_per_call in ((Quick, 1), (Complete, 10)):
        run = await Runner(store, side).enqueue("bulk", 10)
        assert run.costs[JOBS_PER_CALL] == jobs_per_call


async def test_a_figure_that_fails_leaves_the_others(
    store: SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(store, Runner(store, Broken), 1, 1.0)
    await bench.drain("broken", 10, 1)
    bench.runner = Runner(store, Complete)
    await bench.drain("whole", 10, 1)

    assert [figure.name for figure in bench.figures] == ["whole"]
    assert "no such table" in bench.failures["sqlite: broken"]
    assert "FAILED" in capsys.readouterr().out


async def test_earlier_stores_go_unless_they_are_wanted_beside(
    store: SqliteStore, tmp_path: Path
) -> None:
    paths = []
    for beside in (False, True, False):
        url = await store.fresh(beside=beside)
        paths.append(Path(url.removeprefix("sqlite:///")))
        paths[-1].touch()

    assert [path.exists() for path in paths] == [False, False, True]


async def test_no_result_is_stored_where_none_is_said_to_be(store: SqliteStore) -> None:
    runner = Runner(store, Ours)
    filled = await runner.fill(await store.fresh(), 3, 1)

    async with await open_storage(filled.url) as storage:
        jobs = (await storage.jobs.list(JobFilter())).jobs
        kept = [job.keep_result for job in (await storage.jobs.get([j.id for j in jobs])).values()]

    assert kept == [False] * 3
