"""A child of a pod: loads the registry, and runs the jobs that the pod sends, one at a time.

The handler runs on the main thread, where a stop reaches the code: as CancelledError in the task
of an ``async def`` handler, and raised by the handler of SIGTERM in a ``def`` handler. A second
thread reads what the pod sends.
"""

import asyncio
import contextvars
import faulthandler
import logging
import os
import queue
import random
import signal
import socket
import sys
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar, cast

from msgspec import structs

from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry, load_registry
from forge_jobs.model.jobs import Cause, ClaimedJob
from forge_jobs.model.retries import Retry
from forge_jobs.policy.backoff import retry_delay
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.runtime.executors.child_log import PodLog
from forge_jobs.runtime.executors.forks import end_fork, let_go_in_forks
from forge_jobs.runtime.executors.messages import (
    Answer,
    Ended,
    Frames,
    Load,
    Loaded,
    Start,
    Stop,
    ToChild,
    ended,
)
from forge_jobs.runtime.executors.remote import Pod, PodClient, PodJobs, PodLimits, PodNotes
from forge_jobs.runtime.executors.sending import OwnSocket
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.queue.context_calls import LoopThread
from forge_jobs.runtime.queue.execution import execute
from forge_jobs.runtime.queue.failures import message_of
from forge_jobs.runtime.queue.job_context import RunContext
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.shared.clean_texts import clean_text
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.threads import HandlerThread, ThreadEnd
from forge_jobs.storage.protocols import JobStore

T = TypeVar("T")

_TO_CLOSE = 0.5
"""Seconds that clean-ups of shared values have. The pod kills a process that is to quit after one
second."""


class _ChildRun(Run):
    """A run whose time is kept by the pod."""

    __slots__ = ("pod",)

    pod: Pod

    def begin(self, task: "asyncio.Task[None] | None") -> None:
        self.in_thread = task is None
        self._task = task
        if self.stop_reason is not None:
            self._cancel()

    def extend(self, seconds: float) -> None:
        self.pod.tell("extend", seconds)


class _MainThread:
    """Calls ``def`` handlers on the main thread. Stands where the pod has a HandlerThread.

    :ivar is_calling: a plain function runs, so the event loop of the thread does not turn
    """

    def __init__(self) -> None:
        self.is_calling = False
        self._process_id = os.getpid()
        self._run: Run | None = None
        self._is_armed = False
        self._asked: StopReason | None = None

    def expect(self, run: Run) -> None:
        """Interrupt the handler of this run when the run is stopped."""
        self._run, self._asked = run, None

    def ask(self, reason: StopReason) -> None:
        """Interrupt the next plain function of the run, or the one that runs and gets a signal.

        With dependencies only where the run has not heard of the stop on the event loop before: a
        clean-up after that goes on in peace.
        """
        self._asked = self._asked or reason

    def call(self, function: Callable[[], Any], context: contextvars.Context) -> ThreadEnd:
        """Call ``function`` now, and return the outcome."""
        loop = asyncio.get_running_loop()
        future = ThreadEnd(loop)
        error: BaseException | None = None
        value = None
        # As in a thread, where a plain function may run an event loop.
        events._set_running_loop(None)
        try:
            value = context.run(self._armed, function)
        except BaseException as raised:  # a handler may raise anything
            error = raised
        finally:
            events._set_running_loop(loop)
        if os.getpid() != self._process_id:
            end_fork(error)
        future.set_result((value, error))
        return future

    def _armed(self, function: Callable[[], Any]) -> Any:
        self._is_armed = self.is_calling = True
        try:
            self.interrupt()
            return function()
        finally:
            self._is_armed = self.is_calling = False

    def interrupt(self, *_: "int | FrameType | None") -> None:
        """Raise CancelledError in the handler, once, when the run is being stopped.

        Installed for SIGTERM, which comes from others too: systemd sends the signal to all
        processes of a service. Only the pod ends runs.
        """
        run = self._run
        if run is None or not self._is_armed or self._asked is None:
            return
        if run.handler.run is not None and run.stop_reason is not None:
            return
        run.stop_reason = run.stop_reason or self._asked
        self._is_armed = False
        raise asyncio.CancelledError(f"the run is being stopped: {run.stop_reason}")


class _SyncHome:
    """The event loop of ``ctx.sync``, on a thread that starts when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_here(self) -> bool:
        """Return False: a ``def`` handler is on no event loop."""
        return False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, the same for all threads of the handler."""
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                name = "forge-jobs-ctx-sync"
                threading.Thread(target=loop.run_forever, name=name, daemon=True).start()
            return self._loop

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` there, and wait."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


class _Home:
    """Where calls of a context belong whose run has code on the event loop and plain functions.

    Both are on the main thread, one at a time.
    """

    def __init__(self, main: _MainThread, sync: _SyncHome) -> None:
        self._main = main
        self._sync = sync
        self._on_loop = LoopThread()

    def is_here(self) -> bool:
        """Return whether the caller is code on the event loop, which can await."""
        return self._on_loop.is_here() and not self._main.is_calling

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """A loop that turns while a plain function runs."""
        return self._sync.loop

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on that loop, and wait."""
        return self._on_loop.wait_for(work) if self.is_here() else self._sync.wait_for(work)


class _Child:
    def __init__(self, connection: OwnSocket) -> None:
        self._connection = connection
        self._jobs: queue.SimpleQueue[Start | None] = queue.SimpleQueue()
        self._loads: queue.SimpleQueue[Load] = queue.SimpleQueue()
        self._pod = Pod(connection)
        self._main = _MainThread()
        self._loop = asyncio.new_event_loop()
        self._run: _ChildRun | None = None
        self._stopped: StopReason | None = None
        """Why the newest job is to end, also before the run begins."""
        self._sync_home = _SyncHome()
        # Values that live as long as this process.
        self._values = PodValues(None)
        self._main_id = threading.get_ident()
        self._signals = [(signal.SIGINT, _disregard), (signal.SIGTERM, self._main.interrupt)]

    def serve(self) -> None:
        """Run jobs until the pod closes the connection."""
        self._take_signals()
        let_go_in_forks(self._signals, self._connection.close)
        threading.Thread(target=self._read, name="forge-jobs-pod", daemon=True).start()
        load = self._loads.get()
        self._take_log(load.log_level)
        try:
            registry = load_registry(load.registry)
        except BaseException as error:  # the module is the program's code
            text = f"{type(error).__name__}: {message_of(error)}"
            self._pod.send(Loaded(clean_text(text, 4096) or "no reason given"))
            return
        self._pod.send(Loaded())
        asyncio.set_event_loop(self._loop)
        while (start := self._jobs.get()) is not None:
            end = self._loop.run_until_complete(self._run_job(start, registry, load.host_id))
            self._pod.send(end)
        until = self._loop.time() + _TO_CLOSE
        self._loop.run_until_complete(self._values.close(lambda: until))
        self._loop.close()

    def _take_signals(self) -> None:
        for signum, handler in self._signals:
            signal.signal(signum, handler)

    def _take_log(self, level: int) -> None:
        root = logging.getLogger()
        root.handlers[:] = [PodLog(self._pod)]
        root.setLevel(level)

    async def _run_job(self, start: Start, registry: HandlerRegistry, host_id: Any) -> Ended:
        job = start.job
        handler = registry.get(job.kind)
        if handler is None:
            raise LookupError(f"the registry of this child has no handler for {job.kind!r}")
        run = _ChildRun(job, handler, start.worker_id, 0.0, self._loop, patience=float("inf"))
        run.pod = self._pod
        self._main.expect(run)
        # The job before may have left handlers of its own.
        self._take_signals()
        home = self._home_of(handler)
        try:
            task = self._loop.create_task(
                execute(
                    run,
                    host_id,
                    lambda each: self._context(each, home),
                    self._thread,
                    self._values,
                ),
                context=contextvars.Context(),
            )
            # First the run, then the reason. The thread that reads writes them in the other order.
            self._run = run
            if self._stopped is not None:
                self._stop(self._stopped)
            end = await task
        finally:
            self._run = None
        if self._connection.is_elsewhere:
            end_fork(None if end is None else end.exception)
        return ended(_with_delay(end, job, handler))

    def _home_of(self, handler: Handler[..., Any]) -> LoopThread:
        if handler.run is not None:
            return cast("LoopThread", _Home(self._main, self._sync_home))
        return LoopThread() if handler.is_async else cast("LoopThread", self._sync_home)

    def _context(self, run: Run, home: LoopThread) -> RunContext:
        pod = self._pod
        return RunContext(
            run,
            PodClient(pod),
            cast("JobStore", PodJobs(pod)),
            PodLimits(pod),
            home,
            progress=cast("ProgressSender", PodNotes(pod)),
            state={},
        )

    def _thread(self) -> HandlerThread:
        return cast("HandlerThread", self._main)

    # -- the thread that reads ---------------------------------------------------------------

    def _read(self) -> None:
        frames = Frames(ToChild)
        while data := self._connection.receive():
            for message in frames.feed(data):
                if isinstance(message, Load):
                    self._loads.put(message)
                elif isinstance(message, Start):
                    self._stopped = None
                    self._jobs.put(message)
                elif isinstance(message, Stop):
                    self._stopped = StopReason(message.reason)
                    self._stop(self._stopped)
                elif isinstance(message, Answer):
                    self._pod.answered(message)
        if self._run is not None:
            os._exit(1)
        self._jobs.put(None)

    def _stop(self, reason: StopReason) -> None:
        """Stop the run, if one has begun. A second call changes nothing."""
        run = self._run
        if run is None:
            return
        if run.handler.run is not None:
            # Code on the event loop is cancelled, a plain function is interrupted.
            self._main.ask(reason)
            self._loop.call_soon_threadsafe(run.stop, reason)
        elif run.handler.is_async:
            self._loop.call_soon_threadsafe(run.stop, reason)
            return
        else:
            self._main.ask(reason)
            if self._main.is_calling:
                run.stop_reason = run.stop_reason or reason
        signal.pthread_kill(self._main_id, signal.SIGTERM)


def _with_delay(
    end: AttemptEnd | None, job: ClaimedJob, handler: Handler[..., Any]
) -> AttemptEnd | None:
    """Ask a retry policy that is a function here, where the exception is."""
    policy = handler.options.retry
    if end is None or policy is None or isinstance(policy, Retry) or end.delay is not None:
        return end
    if end.cause not in {Cause.FAILED, Cause.TIMED_OUT}:
        return end
    delay = retry_delay(policy, job.attempt, error=end.exception, rng=random.Random())
    return structs.replace(end, delay=delay)


def _disregard(*_: "int | FrameType | None") -> None:
    """Do nothing: Ctrl-C is for the pod."""


def main() -> None:
    """Serve the pod at the other end of the socket that the command line names."""
    faulthandler.enable()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        connection.set_inheritable(False)
        _Child(OwnSocket(connection)).serve()
