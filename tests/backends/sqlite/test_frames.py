"""The frames of ours between a method of the store and the statement on the driver, counted.

A statement runs on the connection's thread, for a method that waits on the event loop. The frames
of both are what a reader of a traceback goes through. The functions of a verb decide what the
statement is, and count as one: what is held here is the way that all verbs share (ADR 225).
"""

import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import forge_jobs
from forge_jobs import open_storage
from forge_jobs.model.transitions import Demand, Finalization
from tests.support.factories import KIND, QUEUE, claim_one, done, enqueue_one, new_job, register

pytestmark = pytest.mark.anyio

MOST = 5
_ROOT = str(Path(forge_jobs.__file__).parent) + "/"
_VERBS = ("storage/sql/jobs/", "storage/sql/sqlite/job_store.py", "storage/sql/sqlite/flavor.py")
_METHODS = {"SqliteJobStore.enqueue", "SqlJobStore.exchange", "SqlJobStore.finalize"}


class Stacks:
    """The frames of ours that were on the way to each statement: ``room:function``, inner last."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ...]] = []
        self._on_loop: tuple[str, ...] = ()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "_execute":
            self._on_loop = _ours(frame)
        elif event == "c_call" and argument.__name__.startswith("execute"):
            self._note(argument.__self__, (*self._on_loop, *_ours(frame)))

    def _note(self, driver: object, stack: tuple[str, ...]) -> None:
        if not isinstance(driver, sqlite3.Connection | sqlite3.Cursor):
            return
        named = [each.rpartition(":")[2] for each in stack]
        starts = [at for at, name in enumerate(named) if name in _METHODS]
        if starts:
            self.found.append(stack[starts[-1] + 1 :])


def _ours(frame: FrameType | None) -> tuple[str, ...]:
    chain: list[str] = []
    while frame is not None:
        room = frame.f_code.co_filename
        if room.startswith(_ROOT):
            chain.append(f"{room.removeprefix(_ROOT)}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(chain))


@contextmanager
def stacks() -> Iterator[Stacks]:
    """Note the stacks of all connections that are opened within the block."""
    noted = Stacks()
    threading.setprofile(noted)
    sys.setprofile(noted)
    try:
        yield noted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def folded(stack: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stack with the functions of the verb as one."""
    short: list[str] = []
    for each in stack:
        is_verb = each.startswith(_VERBS)
        if not (is_verb and short and short[-1] == "the verb"):
            short.append("the verb" if is_verb else each)
    return tuple(short)


async def test_a_statement_is_five_frames_from_the_method_of_the_store(url: str) -> None:
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))
    with stacks() as noted:
        async with await open_storage(url) as storage:
            lease = await register(storage)
            await enqueue_one(storage)
            running = await claim_one(storage, lease)
            noted.found.clear()
            await storage.jobs.enqueue([new_job()])
            ends = [Finalization(running.claim, done())]
            [claimed] = (await storage.jobs.exchange(QUEUE, ends, demand, lease)).claimed
            await storage.jobs.finalize([Finalization(claimed.claim, done())])
    # What a transaction does of its own accord (begin, counts, wake-ups) is no verb's statement.
    of_verbs = [stack for stack in map(folded, noted.found) if stack[-2] == "the verb"]
    of_verbs = [stack for stack in of_verbs if not any("Tx.finish" in each for each in stack)]
    too_long = {" > ".join(stack) for stack in of_verbs if len(stack) > MOST}
    assert not too_long
    # Otherwise nothing was counted.
    assert len(of_verbs) >= 6
    # Of an enqueue the verb is one function, so the whole stack is as short.
    [insert] = {stack for stack in noted.found if stack[-2].endswith(":_store_new")}
    assert len(insert) <= MOST, insert
