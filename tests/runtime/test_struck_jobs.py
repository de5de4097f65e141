"""The leader releases jobs that no strike holds any more."""

from collections.abc import Collection
from typing import cast

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.runtime.passes.struck import BATCH, LOOK_EVERY, StruckJobs
from forge_jobs.storage.protocols import JobStore

pytestmark = pytest.mark.anyio


class Calls:
    """A store with so many jobs to release, and the calls for it."""

    def __init__(self, jobs: int = 0) -> None:
        self.jobs = jobs
        self.asked: list[frozenset[str]] = []

    async def release_struck(self, in_force: Collection[str], limit: int) -> int:
        self.asked.append(frozenset(in_force))
        released = min(self.jobs, limit)
        self.jobs -= released
        return released


async def test_the_store_is_asked_after_a_change_and_each_minute() -> None:
    clock = ManualClock()
    calls = Calls()
    struck = StruckJobs(cast(JobStore, calls), clock=clock)
    none, one = frozenset[str](), frozenset({"a"})
    for marks in (none, none, one, one, none):
        assert await struck.release_once(marks) is None
    assert calls.asked == [none, one, none]
    clock.advance(LOOK_EVERY)
    await struck.release_once(none)
    assert calls.asked[3:] == [none]


async def test_a_pass_goes_on_until_nothing_is_left() -> None:
    clock = ManualClock()
    calls = Calls(2 * BATCH + 1)
    assert await StruckJobs(cast(JobStore, calls), clock=clock).release_once(frozenset()) is None
    assert (calls.jobs, len(calls.asked)) == (0, 3)
