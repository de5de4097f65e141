"""Periodic loops: exceptions of a pass, their log lines, and how soon the loops stop."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest

from forge_jobs.clock import ManualClock, SystemClock
from forge_jobs.errors import Unavailable
from forge_jobs.runtime.shared.service import PeriodicLoop
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

TINY = timedelta(milliseconds=1)


class NoPause(random.Random):
    """Draws pauses of no length."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


class Passes:
    """A pass that raises the listed exceptions in order, and then ends well."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> timedelta | None:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return None


@asynccontextmanager
async def running(loop: PeriodicLoop) -> AsyncGenerator[None]:
    """Run the loop, then stop the loop."""
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run)
        yield
        loop.stop()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines at WARNING and above."""
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_loop_survives_whatever_a_pass_raises(caplog: pytest.LogCaptureFixture) -> None:
    passes = Passes(
        ValueError("defect"),
        Unavailable("away"),
        BaseExceptionGroup("several", [ValueError("in a group")]),
        asyncio.CancelledError(),
        TimeoutError(),
    )
    loop = PeriodicLoop("work", passes, TINY, clock=SystemClock(), rng=NoPause())
    async with running(loop):
        await wait_until(lambda: passes.count >= 8, description="it goes on")
        health = loop.health()
    assert (health.failures, health.failures_total, health.last_error) == (0, 5, "")
    assert health.last_success_ago is not None


async def test_a_cause_is_told_once_until_a_pass_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = [Unavailable("away") for _ in range(4)]
    passes = Passes(*away, ValueError("defect"), Unavailable("away"))
    loop = PeriodicLoop("work", passes, TINY, clock=SystemClock(), rng=NoPause())
    async with running(loop):
        await wait_until(lambda: loop.last_success is not None, description="it works again")
        passes.errors.append(Unavailable("away"))
        await wait_until(lambda: loop.failures_total == 7, description="it failed again")
    told = warnings(caplog)
    assert ["away" in text for text in told] == [True, False, True]
    # A defect is logged with a traceback, an outage in one line.
    assert [bool(each.exc_info) for each in caplog.records if "failed" in each.getMessage()] == [
        False,
        True,
        False,
    ]


async def test_health_shows_the_failure_while_it_lasts() -> None:
    passes = Passes(*(Unavailable("away") for _ in range(1_000)))
    loop = PeriodicLoop("work", passes, TINY, clock=SystemClock(), rng=NoPause())
    async with running(loop):
        await wait_until(lambda: loop.failures >= 3, description="passes fail")
        health = loop.health()
    assert (health.name, health.last_success_ago) == ("work", None)
    assert health.failures >= 3
    assert health.last_error == "Unavailable: away"


async def test_a_ring_shortens_the_pause_and_a_stop_ends_it() -> None:
    passes = Passes()
    loop = PeriodicLoop("work", passes, timedelta(hours=1), clock=SystemClock())
    with anyio.fail_after(20):
        async with running(loop):
            await wait_until(lambda: passes.count == 1, description="a first pass")
            loop.wakeup.wake()
            await wait_until(lambda: passes.count == 2, description="another one")


async def test_a_pass_that_takes_too_long_is_told_and_waited_for() -> None:
    go_on = anyio.Event()
    ended = False

    async def slow() -> timedelta | None:
        nonlocal ended
        await go_on.wait()
        ended = True
        return timedelta(hours=1)

    loop = PeriodicLoop("work", slow, TINY, clock=SystemClock(), timeout=TINY)
    async with running(loop):
        await wait_until(lambda: loop.failures, description="it is told")
        assert "longer than" in loop.health().last_error
        loop.stop()
        go_on.set()
    assert ended


async def test_a_loop_whose_passes_take_too_long_or_fail_is_overdue() -> None:
    clock, answer = ManualClock(), anyio.Event()
    began = anyio.Event()

    async def hangs() -> timedelta | None:
        began.set()
        await answer.wait()
        return timedelta(hours=1)

    loop = PeriodicLoop("work", hangs, timedelta(seconds=1), clock=clock)
    async with running(loop):
        await began.wait()
        clock.advance(30)
        assert not loop.is_overdue
        clock.advance(2)
        assert loop.is_overdue
        answer.set()
        await wait_until(lambda: not loop.is_overdue, description="a pass has ended well")
        clock.advance(3600)
        assert not loop.is_overdue, "it may rest for as long as its pass has said"
        clock.advance(31)
        assert loop.is_overdue
