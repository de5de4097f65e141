"""Ids: ULIDs that one process makes in strictly increasing order."""

import threading
import time

import pytest
from ulid import ULID

from forge_jobs.model import ids
from forge_jobs.model.ids import new_job_id


def test_ids_are_ulids_of_now_in_increasing_order() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_job_id() for _ in range(20_000)]
    after = time.time_ns() // 1_000_000
    assert made == sorted(set(made))
    read = [ULID.from_str(each) for each in made]
    assert [str(each) for each in read] == made
    assert before <= read[0].milliseconds
    assert read[-1].milliseconds <= after


def test_threads_share_one_order() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into.extend(new_job_id() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == sorted(each) for each in made)
    assert len({one for each in made for one in each}) == 8_000


def test_a_clock_that_steps_back_does_not_break_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_job_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert new_job_id() > first


def test_each_millisecond_begins_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    starts = {ids._Ids().next() for _ in range(100)}
    assert len(starts) == 100
    assert len({each[:10] for each in starts}) == 1
    assert len({each[10:14] for each in starts}) > 90


@pytest.mark.parametrize("bits", [10, 20, 30, 80])
def test_numbers_carry_over_all_digits(bits: int) -> None:
    made = ids._Ids()
    made._latest = (1 << 127) + (1 << bits) - 2
    a, b, c = (made.next() for _ in range(3))
    assert [int(ULID.from_str(each)) - (1 << 127) for each in (a, b, c)] == [
        (1 << bits) - 1,
        1 << bits,
        (1 << bits) + 1,
    ]
