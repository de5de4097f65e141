"""An event loop whose time passes by itself: what waits for a second has waited at once."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class _Selector(selectors.DefaultSelector):
    """Does not wait where nothing is ready, but lets the time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing would ever happen again"
        ready = super().select(0)
        if not ready:
            self.passed += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """For coroutines that wait for timers and for each other, and for nothing outside."""

    def __init__(self) -> None:
        self._seconds = _Selector()
        super().__init__(self._seconds)

    def time(self) -> float:
        return self._seconds.passed


class SimulatedClock:
    """The time of the running simulated loop, as a :class:`~forge_jobs.clock.Clock`."""

    def time_us(self) -> int:
        return int(self.elapsed() * 1e6)

    def elapsed(self) -> float:
        return asyncio.get_running_loop().time()


async def pass_time(seconds: float) -> None:
    """Wait in simulated time."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


def simulate(work: Coroutine[Any, Any, R]) -> R:
    """Run ``work`` in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)
