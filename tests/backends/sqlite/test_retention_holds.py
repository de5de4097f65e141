"""How long a batch of retention may hold the write lock of a SQLite file."""

from itertools import count
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.jobs.cleanup import holds
from forge_jobs.storage.sql.jobs.cleanup.holds import Holds, in_portions
from tests.support.factories import DAY, cleaned_up, new_job

pytestmark = pytest.mark.anyio

JOBS = 600
MOST_S = 0.05
"""How long others may be held up."""


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
            patch.setattr(holds, "_elapsed", lambda: next(slow) * 0.02)
            cleaned = await storage.jobs.cleanup(JOBS)
        assert 0 < cleaned.removed <= 100
        assert cleaned.rest is not None
        assert await cleaned_up(storage) >= JOBS - 100


class Disk:
    """Batches of retention in simulated time: so long a row, and so long a commit.

    A commit takes ``commit_s``, and ``share`` of the time of the statements before it. Each ninth
    commit takes two and a half times as long.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.row_s, self.commit_s, self.share = 20e-6, 0.003, 0.5
        self.holds = Holds(0.03, MOST_S)
        self._now = 0.0
        self._commits = count()
        monkeypatch.setattr(holds, "_elapsed", lambda: self._now)

    def batch(self) -> tuple[int, float]:
        """Return the removed rows, and the seconds that the batch held the lock."""
        began = self._now
        rows, _ = in_portions(100_000, self.holds, self._remove)
        commit_s = self.commit_s + (self._now - began) * self.share
        self._now += commit_s * (2.5 if next(self._commits) % 9 == 8 else 1)
        self.holds.end()
        return rows, self._now - began

    def _remove(self, size: int) -> int:
        self._now += size * self.row_s
        return size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_no_batch_is_too_long_though_some_commits_are_slow(disk: Disk) -> None:
    batches = [disk.batch() for _ in range(500)]

    assert max(held for _, held in batches) <= MOST_S
    # Once a slow commit has been seen, all batches have room for one.
    assert [held for _, held in batches[9:] if held > 0.6 * MOST_S + 0.001] == []
    # And the rest of the time is used.
    assert sum(rows for rows, _ in batches) > 500 * 250


def test_a_disk_that_becomes_slower_by_half_makes_no_batch_too_long(disk: Disk) -> None:
    for _ in range(50):
        disk.batch()
    disk.row_s, disk.commit_s, disk.share = 1.5 * disk.row_s, 1.5 * disk.commit_s, 0.75

    assert max(held for _, held in (disk.batch() for _ in range(50))) <= MOST_S


def test_a_disk_that_becomes_much_slower_makes_one_batch_too_long(disk: Disk) -> None:
    for _ in range(50):
        disk.batch()
    disk.share = 8

    held = [disk.batch()[1] for _ in range(50)]

    assert len([each for each in held if each > MOST_S]) == 1
    # And when the disk is as quick as before, batches become as long as before, bit by bit.
    disk.share = 0.5
    first, *_, last = [disk.batch()[0] for _ in range(100)]
    assert (first, last >= 250) == (32, True)


async def test_batches_are_measured_to_the_end_of_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, noted = ManualClock(), list[str]()
    begin, end = Holds.begin, Holds.end

    def note_begin(of: Holds) -> float:
        noted.append("begin")
        return begin(of)

    def note_end(of: Holds) -> None:
        noted.append("end")
        end(of)

    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as storage:
        await storage.jobs.enqueue([new_job() for _ in range(JOBS)])
        await storage.jobs.cancel(JobFilter(), limit=1_000)
        clock.advance(40 * DAY)
        with monkeypatch.context() as patch:
            patch.setattr(Holds, "begin", note_begin)
            patch.setattr(Holds, "end", note_end)
            assert await cleaned_up(storage) >= JOBS
    assert noted == ["begin", "end"] * (len(noted) // 2)
    assert noted
