"""Handlers that run in processes of their own. Children import this module."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import anyio
import anyio.lowlevel
import msgspec

from forge_jobs import (
    Again,
    EnqueueRequest,
    Fixed,
    Group,
    HandlerRegistry,
    JobContext,
    RunEnd,
    Secret,
    Snoozed,
    Steps,
)
from forge_jobs.errors import InvalidInput, KeyMissing

handlers = HandlerRegistry()

FORKS_TWICE = """
import os, signal, sys, time
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
marked, marks = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.close(marks)
        time.sleep(600)
    os._exit(0)
os.wait()
os.close(marks)
os.read(marked, 1)
time.sleep(float(sys.argv[2]))
"""
"""A program that leaves a process behind: in another session, deaf to SIGTERM.

Ends when the process left behind has written its id.
"""


@handlers.job("process.adds", executor="process")
def adds(ctx: JobContext, left: int, right: int) -> list[int]:
    """Add, and say where."""
    return [left + right, os.getpid(), ctx.attempt]


@handlers.job("process.adds_async", executor="process")
async def adds_async(left: int, right: int) -> list[int]:
    """Add on an event loop in the child."""
    await anyio.lowlevel.checkpoint()
    return [left + right, os.getpid()]


@handlers.job("process.fails", executor="process", max_attempts=1)
def fails() -> None:
    """Raise."""
    raise LookupError("no such thing")


@handlers.job("process.lacks_key", executor="process", max_attempts=1)
def lacks_key(ctx: JobContext) -> None:
    """Raise as ``load_checkpoint`` does without the key."""
    raise KeyMissing(ctx.job_id, "checkpoint", "0a0a0a0a")


@handlers.job(
    "process.fails_by_turns",
    executor="process",
    max_attempts=2,
    retry=lambda attempt, error: 0.0 if isinstance(error, LookupError) else 3600.0,
)
def fails_by_turns(ctx: JobContext) -> str:
    """Raise once, and succeed."""
    if ctx.attempt == 1:
        raise LookupError("no such thing yet")
    return "there now"


@handlers.job("process.snoozes", executor="process")
def snoozes(mark: str) -> str:
    """Ask for another time, once."""
    if not Path(mark).exists():
        Path(mark).touch()
        raise Snoozed(0.01)
    return "awake"


@handlers.job("process.dies", executor="process")
def dies(how: str) -> None:
    """End the process."""
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)


@handlers.job("process.dies_unbounded", executor="process", max_attempts=None, max_crashes=1)
def dies_at_once() -> None:
    """End the process, as a job that may do so once."""
    os._exit(1)


def _note(mark: str) -> None:
    partial = Path(mark + ".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(mark)


def _reason(mark: str, ctx: JobContext) -> None:
    Path(mark + ".reason").write_text(str(ctx.stop_reason))


@handlers.job("process.waits", executor="process")
def waits(ctx: JobContext, mark: str) -> None:
    """Wait until interrupted, and say why."""
    _note(mark)
    try:
        time.sleep(600)
    finally:
        _reason(mark, ctx)


@handlers.job("process.waits_async", executor="process")
async def waits_async(ctx: JobContext, mark: str) -> None:
    """Wait until cancelled, and say why."""
    _note(mark)
    try:
        await anyio.sleep_forever()
    finally:
        _reason(mark, ctx)


@handlers.job("process.waits_for", executor="process")
def waits_for(mark: str, gate: str) -> str:
    """Wait until the file ``gate`` exists."""
    _note(mark)
    while not Path(gate).exists():
        time.sleep(0.01)
    return "went through"


@handlers.job("process.deaf", executor="process")
def deaf(mark: str) -> None:
    """Go on whatever comes."""
    _note(mark)
    while True:
        try:
            time.sleep(600)
        except BaseException:
            continue


@handlers.job("process.leaves", executor="process")
def leaves(mark: str) -> None:
    """Start a program that leaves a process behind, and wait for ever."""
    subprocess.run([sys.executable, "-c", FORKS_TWICE, mark, "600"], check=False)


@handlers.job("process.leaves_and_dies", executor="process", max_crashes=1)
def leaves_and_dies(mark: str) -> None:
    """Start a program that leaves a process behind, and die."""
    subprocess.run([sys.executable, "-c", FORKS_TWICE, mark, "0"], check=False)
    os._exit(1)


@handlers.job("process.grows", executor="process", max_memory=200 * 2**20, max_attempts=1)
def grows() -> None:
    """Take memory until killed."""
    taken = []
    while True:
        taken.append(bytearray(8 * 2**20))
        time.sleep(0.01)


@handlers.job("process.child_grows", executor="process", max_memory=200 * 2**20, max_attempts=1)
def child_grows() -> None:
    """Have another program take memory."""
    code = "import time; taken = bytearray(b'x') * (300 * 2**20); time.sleep(600)"
    subprocess.run([sys.executable, "-c", code], check=False)


@handlers.job("process.thrice", executor="process", max_runs_per_child=3)
def thrice() -> int:
    """Say which process ran the job."""
    return os.getpid()


@handlers.job("process.large", executor="process")
def large(length: int) -> str:
    """Return a long text."""
    return "x" * length


@handlers.job("process.not_json", executor="process")
def not_json() -> object:
    """Return what JSON cannot carry."""
    return object()


@handlers.job("process.logs", executor="process")
def logs(ctx: JobContext) -> None:
    """Log a line, and an exception."""
    ctx.log.info("half done")
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("shop").exception("went on", extra={"order": 7})


@handlers.job("process.enqueues", executor="process")
def enqueues(ctx: JobContext) -> list[str]:
    """Enqueue through the pod."""
    one = ctx.sync.enqueue(adds.request(1, 2), priority=7)
    many = ctx.sync.enqueue_many(
        [adds_async.request(3, 4), EnqueueRequest("process.adds", '{"left": 1, "right": 1}')]
    )
    return [one.job_id, *(each.job_id for each in many)]


@handlers.job("process.enqueues_async", executor="process")
async def enqueues_async(ctx: JobContext) -> list[str]:
    """Enqueue through the pod."""
    one = await ctx.enqueue(adds.request(1, 2), tags=("from-a-child",))
    return [one.job_id]


@handlers.job("process.adds_steps", executor="process")
def adds_steps(ctx: JobContext) -> list[str]:
    """Add steps to the workflow through the pod."""
    steps = Steps()
    steps.step("sum", adds.request(1, 2))
    many = Group([adds.request(3, 4), adds.request(5, 6)], tags=("many",))
    steps.step("many", many, after={"sum": "continue"})
    return sorted(ctx.sync.add_steps(steps))


@handlers.job("process.misuses", executor="process")
def misuses(ctx: JobContext) -> list[str]:
    """Do what is refused, and say with which words."""
    said: list[str] = []
    for call in (
        lambda: ctx.sync.enqueue(adds.request(1, 2), delay=-1),
        lambda: ctx.sync.rate_limit.acquire("unknown"),
        lambda: ctx.sync.finish_in(object()),
    ):
        try:
            call()
        except (InvalidInput, LookupError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


@handlers.job("process.takes_turns", executor="process", timeout=0.5)
def extends(ctx: JobContext) -> bool:
    """Take a token, and longer than the timeout."""
    ctx.extend_timeout(60)
    time.sleep(0.7)
    return ctx.sync.rate_limit.acquire("api")


class Size(msgspec.Struct):
    """A checked argument."""

    width: int


@handlers.job("process.checked", executor="process", max_attempts=1)
def checked(size: Size) -> int:
    """Take a checked argument."""
    return size.width


@handlers.job("process.beside")
async def beside() -> str:
    """Run on the event loop of the pod."""
    return "beside"


@handlers.job("process.tells", executor="process")
def tells(ctx: JobContext) -> list[int]:
    """Tell of the progress, keep a line, and read the results of the parents."""
    ctx.progress.set(1, 2, "half")
    ctx.log.info("a kept line")
    ctx.sync.checkpoint({"step": 1})
    assert ctx.sync.load_checkpoint() == {"step": 1}
    return [parent.result()[0] for parent in ctx.sync.parents()]


@handlers.job("process.whispers", executor="process")
def whispers(ctx: JobContext, password: Annotated[str, Secret]) -> None:
    """Log a secret."""
    ctx.log.info("with %s", password)


def notes_the_end(ctx: JobContext, end: RunEnd) -> None:
    """Note in the file of the job which process runs the hook, and the end."""
    error = "" if end.error is None else end.error.type
    with Path(ctx.metadata["note"]).open("a") as file:
        file.write(f"{os.getpid()} {end.cause} {end.status} {error} {end.exception}\n")


@handlers.job(
    "process.hooked",
    executor="process",
    max_attempts=2,
    retry=Fixed(3600),
    on_error=notes_the_end,
    on_done=notes_the_end,
)
def hooked(how: str) -> None:
    """End in one of several ways."""
    if how == "raises":
        raise LookupError("no such thing")
    if how == "dies":
        os._exit(3)


@handlers.job("process.again", executor="process")
def begins_again(ctx: JobContext, size: Size) -> object:
    """Begin again with a larger argument, until the third time."""
    if ctx.occurrence < 3:
        return Again(payload={"size": Size(size.width + 1)})
    return [size.width, ctx.attempt]
