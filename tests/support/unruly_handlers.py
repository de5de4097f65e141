"""Handlers that fork, close descriptors and talk without end. Children import this module."""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from forge_jobs import Depends, HandlerRegistry, JobContext

handlers = HandlerRegistry()


def _note(mark: str) -> None:
    partial = Path(mark + ".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(mark)


@handlers.job("unruly.talks", executor="process")
def talks(mark: str) -> None:
    """Log lines that are larger than what a socket holds, until interrupted."""
    _note(mark)
    while True:
        logging.getLogger("shop").warning("large", extra={"part": "x" * 1_000_000})


@handlers.job("unruly.forks", executor="process")
def forks(ctx: JobContext, how: str) -> list[int]:
    """Fork a process that talks, and comes back to the caller of the handler or exits."""
    process_id = os.fork()
    if process_id == 0:
        for number in range(50):
            logging.getLogger("shop").warning(
                "line %d of the fork", number, extra={"part": "y" * 300_000}
            )
        if how == "exits":
            sys.exit(7)
        if how == "raises":
            raise LookupError("in the fork")
        if how == "tells":
            ctx.progress.set(1, 1, "of the fork")
        return [-1, -1]
    for number in range(50):
        logging.getLogger("shop").warning(
            "line %d of the handler", number, extra={"part": "x" * 300_000}
        )
    _, status = os.waitpid(process_id, 0)
    return [os.getpid(), os.waitstatus_to_exitcode(status)]


@handlers.job("unruly.leaves_a_fork", executor="process")
def leaves_a_fork(mark: str) -> None:
    """Fork a process that sleeps, and wait until interrupted."""
    if os.fork() == 0:
        _note(mark)
        time.sleep(600)
        os._exit(0)
    time.sleep(600)


def noted(note: str) -> Iterator[str]:
    """Note the clean-up in the file of the job."""
    yield "a value"
    with Path(note).open("a") as file:
        file.write("cleaned up\n")


@handlers.job("unruly.forks_with_a_value", executor="process")
def forks_with_a_value(note: str, value: str = Depends(noted)) -> list[object]:
    """Fork a process that comes back to the caller of the handler."""
    process_id = os.fork()
    if process_id == 0:
        return []
    _, status = os.waitpid(process_id, 0)
    return [value, os.waitstatus_to_exitcode(status)]


@handlers.job("unruly.forks_async", executor="process")
async def forks_async() -> list[int]:
    """Fork a process that comes back to the caller of the handler."""
    process_id = os.fork()
    if process_id == 0:
        return [-1, -1]
    _, status = await asyncio.to_thread(os.waitpid, process_id, 0)
    return [os.getpid(), os.waitstatus_to_exitcode(status)]


@handlers.job("unruly.terminates", executor="process")
def terminates(times: int) -> list[int | None]:
    """Start processes of multiprocessing by forks, and end each as multiprocessing does."""
    codes = []
    for _ in range(times):
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        process.terminate()
        process.join()
        codes.append(process.exitcode)
    return codes


@handlers.job("unruly.writes_rubbish", executor="process", max_crashes=1)
def writes_rubbish() -> None:
    """Write to the descriptor of the connection, and wait."""
    os.write(int(sys.argv[1]), b"\0\0\0\2xy")
    time.sleep(20)


@handlers.job("unruly.has_a_loop", executor="process", max_attempts=1)
def has_a_loop() -> str:
    """Run a coroutine on an event loop of the handler."""

    async def answer() -> str:
        return await asyncio.to_thread(str, "of a loop")

    return asyncio.run(answer())


@handlers.job("unruly.has_a_loop_and_a_value", executor="process", max_attempts=1)
def has_a_loop_and_a_value(note: str, value: str = Depends(noted)) -> str:
    """Run a coroutine on an event loop of the handler."""
    return has_a_loop.function() + value


@handlers.job("unruly.takes_signals", executor="process")
def takes_signals() -> int:
    """Leave handlers of signals behind, as some libraries do."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return os.getpid()


@handlers.job("unruly.waits", executor="process")
def waits(ctx: JobContext, mark: str) -> None:
    """Wait until interrupted, and say why."""
    _note(mark)
    try:
        time.sleep(600)
    finally:
        Path(f"{mark}.reason").write_text(str(ctx.stop_reason))


@handlers.job("unruly.closes", executor="process", max_crashes=1)
def closes(path: str) -> None:
    """Close all descriptors, as daemons do, open a file in their place, and log."""
    connection = int(sys.argv[1])
    os.closerange(3, 256)
    while os.open(path, os.O_RDWR | os.O_CREAT) != connection:
        pass
    logging.getLogger("shop").warning("a line for the pod")
