"""The children of a pod: started when needed, kept warm, replaced, and ended."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from forge_jobs.model.ids import HostId
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.executors.guarded import (
    GuardedProgram,
    NoProcess,
    ProgramEnd,
    attach,
    is_hung_up,
    unread,
)
from forge_jobs.runtime.executors.messages import (
    Call,
    Ended,
    Frames,
    FromChild,
    Load,
    Loaded,
    LogLine,
    Start,
    Stop,
    ToChild,
    frame,
)
from forge_jobs.runtime.executors.warm import WarmPrograms

logger = reporter(__name__)

_PAUSES = Pauses(0.5, 30.0, jitter=0)
_FORGOTTEN_AFTER = 120.0

_READY_WITHIN = 60.0
"""Seconds for a child to import the registry."""

_TO_QUIT = 1.0
"""Seconds for an idle child to run the exit hooks of its program."""

_MAIN = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(2)); "
    "from forge_jobs.runtime.executors.child import main; main()"
)

_Calls = Callable[["Child", Call], None]


class Child(asyncio.Protocol):
    """A process that runs jobs of this pod, one at a time.

    :param calls: makes the calls of the context
    """

    def __init__(self, registry: str, host_id: HostId, calls: _Calls) -> None:
        self.program = GuardedProgram()
        self.runs = 0
        """How many jobs the child has been given."""
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._load = Load(registry, host_id, logging.getLogger().getEffectiveLevel())
        self._calls = calls
        self._frames = Frames(FromChild)
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._loaded: asyncio.Future[str] = self._loop.create_future()
        self._answer: asyncio.Future[Ended | ProgramEnd] | None = None
        self._retired = False
        self.program.ended.add_done_callback(self._has_ended)

    @property
    def is_alive(self) -> bool:
        """Return whether the child can take a job."""
        return not (self._retired or self.program.ended.done() or is_hung_up(self._socket))

    async def start(self) -> None:
        """Start the process, and wait until the registry is loaded there.

        :raises NoProcess: says why there is no child
        """
        ours, theirs = self.program.socket_pair()
        with theirs:
            path = [each or "." for each in sys.path]
            descriptor = theirs.fileno()
            argv = [
                sys.executable,
                "-c",
                _MAIN,
                str(descriptor),
                json.dumps(path),
            ]
            self._socket = ours
            try:
                await attach(self, ours)
                await self.program.start(argv, inherited=(descriptor,))
            except BaseException:
                self.kill()
                self.program.give_up()
                raise
        self._send(self._load)
        try:
            async with asyncio.timeout(_READY_WITHIN):
                problem = await self._loaded
        except TimeoutError:
            problem = f"the registry was not imported within {_READY_WITHIN:.0f} s"
        except asyncio.CancelledError:
            self.kill()
            raise
        if problem:
            self.kill()
            raise NoProcess(f"a child could not load {self._load.registry}: {problem}")

    def run(self, start: Start, max_memory: int | None) -> "asyncio.Future[Ended | ProgramEnd]":
        """Send a job. The answer is how the run ended, or the child."""
        self.runs += 1
        self._answer = self._loop.create_future()
        if self.program.ended.done():
            self._answer.set_result(self.program.ended.result())
            return self._answer
        self.program.limit_memory(max_memory or 0)
        self._send(start)
        return self._answer

    def interrupt(self, reason: str) -> None:
        """Ask the handler to end, and all processes that the handler has started."""
        self._send(Stop(reason))
        self.program.terminate()

    def retire(self) -> None:
        """Let the child quit by itself. Kill what is left a second later."""
        self._retired = True
        self._hang_up()
        self._loop.call_later(_TO_QUIT, self.program.kill)

    def kill(self) -> None:
        """Kill the child and all processes that came from the child."""
        self._retired = True
        self.program.kill()
        self._hang_up()

    def send(self, message: ToChild) -> None:
        """Send an answer."""
        self._send(message)

    def _send(self, message: ToChild) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- calls of the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of uvloop are no subclass.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._hear(message)
        except msgspec.MsgspecError as error:
            logger.error(
                "a process of %s sent what is no message (%s), and is killed: does a handler write "
                "to descriptors that are not its own?",
                self._load.registry,
                error,
            )
            self.kill()

    def connection_lost(self, error: Exception | None) -> None:
        self.data_received(unread(self._socket))
        if not self._retired:
            # Of a process that ends, the guardian tells in a moment. Another one is cut off.
            self.retire()

    def _hear(self, message: FromChild) -> None:
        if isinstance(message, Loaded):
            if not self._loaded.done():
                self._loaded.set_result(message.problem)
        elif isinstance(message, LogLine):
            _log(message)
        elif isinstance(message, Call):
            self._calls(self, message)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _has_ended(self, program: "asyncio.Future[ProgramEnd]") -> None:
        self._hang_up()
        if not self._loaded.done():
            self._loaded.set_result(f"the process {program.result()}")
        # An answer that was sent before the end is on its way through the event loop.
        self._loop.call_soon(self._answer_with, program.result())

    def _answer_with(self, end: ProgramEnd) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(end)


class ChildSupply:
    """The children of one pod, lent for one run each: as many as have run at once.

    When no child can be started, another start is tried after a pause, which doubles after each
    further refusal.

    :param changed: called with whether a child can be had, each time that changes
    """

    def __init__(
        self, registry: str, host_id: HostId, calls: _Calls, changed: Callable[[bool], None]
    ) -> None:
        self.problem = ""
        """Why no further child starts, else ""."""
        self._warm = WarmPrograms(lambda: Child(registry, host_id, calls))
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._refusals = 0
        self._refused_at = float("-inf")
        self._next_trial: asyncio.TimerHandle | None = None
        self._trial: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self) -> Child:
        """Return an idle child for one run, or start one.

        :raises NoProcess: none is idle, and none can be started
        """
        try:
            return await self._warm.take()
        except NoProcess as error:
            self._refused(error)
            raise

    def give_back(self, child: Child, max_runs: int | None) -> None:
        """Keep a child for the next run, or replace the child after ``max_runs``."""
        self._warm.give_back(child, max_runs)

    async def close(self) -> None:
        """End all children, and wait until they are gone."""
        self._closed = True
        for pending in (self._next_trial, self._trial):
            if pending is not None:
                pending.cancel()
        await self._warm.close()

    # -- refusals of the system --------------------------------------------------------------

    def _refused(self, error: NoProcess) -> None:
        if self.problem or self._closed:
            return
        if self._loop.time() - self._refused_at > _FORGOTTEN_AFTER:
            self._refusals = 0
        self._wait(error)
        self._changed(False)

    def _wait(self, error: NoProcess) -> None:
        self._refusals += 1
        pause = _PAUSES.after(self._refusals)
        self._refused_at = self._loop.time()
        self.problem = f"no process for handlers can be started: {error}"
        logger.warning(
            '%s. Jobs of handlers with executor="process" are given back, and none are claimed for '
            "%.1f s at least. Raise the limits of processes, memory and open files (ulimit -u, "
            "pids.max of the container), or mend the import",
            self.problem,
            pause,
        )
        self._next_trial = self._loop.call_later(pause, self._begin_trial)

    def _begin_trial(self) -> None:
        self._trial = self._loop.create_task(self._try_again())

    async def _try_again(self) -> None:
        try:
            child = await self._warm.start()
        except NoProcess as error:
            self._wait(error)
            return
        logger.info("processes for handlers start again")
        self.problem = ""
        self.give_back(child, None)
        self._changed(True)


def _log(line: LogLine) -> None:
    """Put a record of a child into the log of the pod."""
    target = logging.getLogger(line.logger)
    if not target.isEnabledFor(line.level):
        return
    record = target.makeRecord(
        line.logger,
        line.level,
        line.path,
        line.line,
        "%s",
        (line.message,),
        None,
        line.function,
        dict(line.extra),
    )
    record.created = line.created
    record.exc_text = line.traceback or None
    target.handle(record)
