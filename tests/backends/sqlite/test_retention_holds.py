"""How long a batch of retention may hold the write lock of a SQLite file."""

from itertools import count
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql import retention
from tests.support.factories import DAY, cleaned_up, new_job

pytestmark = pytest.mark.anyio

JOBS = 600


async def test_a_batch_ends_when_the_lock_was_held_for_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slow = ManualClock(), count()
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as storage:
        await storage.jobs.enqueue([new_job() for _ in range(JOBS)])
        await storage.jobs.cancel(JobFilter(), limit=1_000)
        clock.advance(40 * DAY)
        with monkeypatch.context() as patch:
            # A disk on which each portion takes 20 ms.
            patch.setattr(retention, "_elapsed", lambda: next(slow) * 0.02)
            cleaned = await storage.jobs.cleanup(JOBS)
        assert 0 < cleaned.removed <= 100
        assert cleaned.rest is not None
        assert await cleaned_up(storage) >= JOBS - 100


def test_a_slow_commit_makes_the_next_batch_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(retention, "_elapsed", lambda: now[0])
    holds = retention.Holds(0.03, 0.05)

    def batch(seconds: float) -> float:
        holds.begin()
        now[0] += seconds
        holds.end()
        return holds.script_s

    assert batch(0.1) == pytest.approx(0.03 * 0.6 / 2)
    assert batch(0.05) == pytest.approx(0.6 * 0.009)
    assert batch(10.0) == 0.001
    # Up again bit by bit, and never beyond what it began with.
    assert batch(0.001) == pytest.approx(0.00125)
    for _ in range(30):
        longest = batch(0.001)
    assert longest == 0.03


async def test_batches_are_measured_to_the_end_of_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, noted = ManualClock(), list[str]()
    begin, end = retention.Holds.begin, retention.Holds.end

    def note_begin(holds: retention.Holds) -> float:
        noted.append("begin")
        return begin(holds)

    def note_end(holds: retention.Holds) -> None:
        noted.append("end")
        end(holds)

    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as storage:
        await storage.jobs.enqueue([new_job() for _ in range(JOBS)])
        await storage.jobs.cancel(JobFilter(), limit=1_000)
        clock.advance(40 * DAY)
        with monkeypatch.context() as patch:
            patch.setattr(retention.Holds, "begin", note_begin)
            patch.setattr(retention.Holds, "end", note_end)
            assert await cleaned_up(storage) >= JOBS
    assert noted == ["begin", "end"] * (len(noted) // 2)
    assert noted
