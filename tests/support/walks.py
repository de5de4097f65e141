"""The way of a job through the code: which modules of ours the way passes, and how often it turns.

A room is a module. A move is a step from a function of one room into a function of another, in one
thread.
"""

import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import forge_jobs
from forge_jobs import HandlerRegistry, JobClient, open_storage
from forge_jobs.runtime.shared.store_calls import CallMeter, metered
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job
from tests.support.queue_loops import Bench, bench
from tests.support.waiting import wait_until

_ROOT = str(Path(forge_jobs.__file__).parent) + "/"


class Step(NamedTuple):
    """A function that was entered."""

    thread: int
    room: str
    name: str


class Walk:
    """The functions that were entered on the way. A generator that goes on counts once."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        # Frames are kept, so that no later one has the same identity.
        self._frames: dict[int, FrameType] = {}

    def note(self, frame: FrameType, event: str) -> None:
        """Note a call, as ``sys.setprofile`` reports one."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_ROOT) and id(frame) not in self._frames:
            self._frames[id(frame)] = frame
            room = code.co_filename.removeprefix(_ROOT)
            self.steps.append(Step(threading.get_ident(), room, code.co_qualname))

    @property
    def rooms(self) -> Counter[str]:
        """The modules, each with the number of calls."""
        return Counter(step.room for step in self.steps)

    @property
    def moves(self) -> int:
        """How often a thread went from one module into another."""
        last: dict[int, str] = {}
        moves = 0
        for thread, room, _ in self.steps:
            moves += last.get(thread) != room
            last[thread] = room
        return moves

    def report(self, title: str, *, steps: bool = False) -> str:
        """Return the figures, and the rooms with their calls.

        :param steps: every function in turn, too
        """
        rooms = ", ".join(f"{room} {calls}" for room, calls in self.rooms.items())
        lines = [
            f"{title}: {len(self.steps)} calls, {len(self.rooms)} rooms, {self.moves} moves",
            f"   {rooms}",
        ]
        if steps:
            lines += [
                f"      {step.thread % 1000:3d} {step.room} {step.name}" for step in self.steps
            ]
        return "\n".join(lines)


class _Tracer:
    """Fills one walk at a time, from all threads that begin under :func:`_profiled`."""

    def __init__(self) -> None:
        self._walk: Walk | None = None

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self._walk is not None:
            self._walk.note(frame, event)

    @contextmanager
    def walk(self) -> Iterator[Walk]:
        """Trace what is entered within the block."""
        self._walk = walk = Walk()
        try:
            yield walk
        finally:
            self._walk = None


@contextmanager
def _profiled() -> Iterator[_Tracer]:
    tracer = _Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield tracer
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def way_of_an_enqueue(url: str, jobs: int = 40) -> Walk:
    """Return the way of ``client.enqueue`` for one job of a warm client, the shortest of many.

    On Postgres a notification of earlier jobs may be under way meanwhile, of some and not of all.
    """
    handlers = HandlerRegistry()
    walks: list[Walk] = []

    @handlers.job("k.add", queue="q")
    async def add(a: int, b: int) -> int:
        return a + b

    with _profiled() as tracer:
        async with await open_storage(url) as storage, JobClient(storage, handlers) as client:
            for _ in range(jobs):
                with tracer.walk() as walk:
                    await client.enqueue(add.request(1, 2))
                walks.append(walk)
    return _shortest(walks)


async def way_of_a_run(url: str, jobs: int = 5) -> Walk:
    """Return the way of one job through a warm pod, the shortest of some.

    From the moment at which the queue's loop is woken to the moment at which the loop rests, with
    the end of the job stored. How the wake-up comes, and what heartbeat and passes do meanwhile,
    are not on this way, so that the figures are the same on every machine.
    """
    walks: list[Walk] = []
    with _profiled() as tracer:
        async with await open_storage(url) as opened, _pod(opened) as it:
            for _ in range(jobs):
                # Another program enqueues, and has sent all wake-ups when closed.
                async with await opened.reopen() as other:
                    await other.jobs.enqueue([new_job(kind="k.add", payload='{"a":1,"b":2}')])
                with tracer.walk() as walk:
                    it.pool.hint()
                    await wait_until(_rests_after(it, len(walks)), description="the end is stored")
                walks.append(walk)
    return _shortest(walks)


def _rests_after(it: Bench, runs: int) -> Callable[[], bool]:
    """Return whether more runs have ended and are stored. Calls nothing that is traced."""
    services, outbox = it.services, it.loop.outbox
    return lambda: (
        services.ended_runs > runs
        and not outbox.ends.waiting
        and it.loop.asked_at is None
        and outbox.wakeup._waiter is not None
    )


@asynccontextmanager
async def _pod(opened: Storage) -> AsyncIterator[Bench]:
    """The loop of a queue as in a pod: with one slot, and calls of the store that are counted."""
    async with bench(metered(opened, CallMeter())) as it:

        @it.handlers.job("k.add")
        async def add(a: int, b: int) -> int:
            return a + b

        it.services.kinds = it.handlers.kinds()
        it.beat()
        await it.at_rest()
        yield it


def _shortest(walks: Sequence[Walk]) -> Walk:
    # The first calls open connections and fill caches.
    return min(walks, key=lambda walk: (walk.moves, len(walk.steps)))
