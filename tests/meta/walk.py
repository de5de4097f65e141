"""Counts how far a job travels through the code: ``python -m tests.meta.walk sqlite``.

A room is a module, a move is a step from a function of one module into a function of another, in
one thread. One job of a warm runtime is traced: first ``client.enqueue``, then wake-up, claim, run
and finalize once the enqueue has returned. Figures vary with what else the pod does at that
moment, so several jobs are traced, and the one with the fewest moves is printed. A job whose claim
began before the trace does not count. ``--steps`` prints every function in turn.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import forge_jobs
from forge_jobs import HandlerRegistry, JobClient, QueueRuntime, open_storage
from forge_jobs.testing.servers import PostgresServer, RedisServer

_ROOT = str(Path(forge_jobs.__file__).parent) + "/"
_SERVERS = {"postgres": PostgresServer, "redis": RedisServer}
_RUN = "execute"
# How each store begins, or goes on with, a claim.
_CLAIM = {"_is_open", "PostgresDatabase._direct", "_step"}


class Step(NamedTuple):
    """A function that was entered."""

    thread: int
    room: str
    name: str


class Walk:
    """The functions that one job entered. A generator that goes on counts once."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        # Frames are kept, so that no later one has the same identity.
        self._frames: dict[int, FrameType] = {}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
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

    @property
    def is_whole(self) -> bool:
        """True when the trace has the store's part of the claim, and then the run."""
        names = [step.name for step in self.steps]
        return _RUN in names and not _CLAIM.isdisjoint(names[: names.index(_RUN)])

    def report(self, title: str, *, steps: bool) -> str:
        """Return the figures, and the rooms with their calls."""
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


_walks: list[Walk] = []


def _note(frame: FrameType, event: str, argument: Any) -> None:
    for walk in _walks:
        walk.note(frame, event, argument)


@contextmanager
def traced() -> Iterator[Walk]:
    """Trace all threads that have begun under :func:`main`."""
    walk = Walk()
    _walks.append(walk)
    try:
        yield walk
    finally:
        _walks.remove(walk)


async def walks(url: str, jobs: int) -> tuple[Walk, Walk]:
    """Return the way of an enqueue, and that of a claim, run and end, each the shortest of some."""
    handlers, done = HandlerRegistry(), asyncio.Event()

    @handlers.job("k.add", queue="q")
    async def add(a: int, b: int) -> int:
        done.set()
        return a + b

    async with await open_storage(url) as storage, JobClient(storage, handlers) as client:
        enqueues, runs = [], []
        for _ in range(jobs):
            with traced() as walk:
                await client.enqueue(add.request(1, 2))
            enqueues.append(walk)
        async with QueueRuntime(storage, handlers).with_queues(q=2).start():
            for _ in range(5):
                done.clear()
                await client.enqueue(add.request(1, 2))
                await done.wait()
            for _ in range(jobs):
                # Until the pod rests.
                await asyncio.sleep(1.2)  # noqa: TID251 - nothing tells that a pod rests
                done.clear()
                await client.enqueue(add.request(1, 2))
                with traced() as walk:
                    await done.wait()
                    await asyncio.sleep(0.08)  # noqa: TID251 - nor that its loop has slept in
                runs.append(walk)
    whole = [walk for walk in runs if walk.is_whole]
    if not whole:
        raise SystemExit("each claim had begun before the trace: try again, or with more --jobs")
    # The first enqueues open connections and fill caches.
    return min(enqueues[3:], key=_length), min(whole, key=_length)


def _length(walk: Walk) -> int:
    return walk.moves


def main() -> None:
    """Print the figures of one store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", choices=["sqlite", *_SERVERS])
    parser.add_argument("--jobs", type=int, default=12, help="how many jobs are traced")
    parser.add_argument("--steps", action="store_true", help="print every function in turn")
    given = parser.parse_args()
    threading.setprofile(_note)
    sys.setprofile(_note)
    if given.store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(walks(f"sqlite:///{folder}/jobs.db", given.jobs))
    else:
        with _SERVERS[given.store]() as server:
            found = asyncio.run(walks(server.url, given.jobs))
    for title, walk in zip(("enqueue", "wake-up, claim, run, finalize"), found, strict=True):
        print(walk.report(f"{title}, {given.store}", steps=given.steps))


if __name__ == "__main__":
    main()
