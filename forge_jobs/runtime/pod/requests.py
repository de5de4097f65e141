"""The pod's side of requests: quiet, resume, stop, stacks."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from forge_jobs.clock import Clock
from forge_jobs.model.pod_requests import PodRequest, PodVerb
from forge_jobs.runtime.heartbeat.requests import Reply
from forge_jobs.runtime.heartbeat.stacks import stacks_of
from forge_jobs.runtime.queue.loop import QueueLoop
from forge_jobs.runtime.queue.run import Run


class _Beating(Protocol):
    quiet: bool


class _Pod(Protocol):
    """The parts of a running pod that requests touch."""

    draining: bool
    when_asked: Callable[[], object]

    @property
    def queues(self) -> Mapping[str, QueueLoop]:
        """The loops of the queues, by name."""
        ...

    @property
    def heartbeat(self) -> _Beating:
        """The heartbeat, which tells the store of a quiet pod."""
        ...

    def runs(self) -> Iterable[Run]:
        """Return all runs of all queues."""
        ...


class AskedPod:
    """Does what operators ask of one pod. Made on the event loop of the handlers."""

    def __init__(self, pod: _Pod, clock: Clock) -> None:
        self._pod = pod
        self._clock = clock
        self._home = asyncio.get_running_loop()
        self._home_thread = threading.get_ident()

    def asked(self, request: PodRequest, reply: Reply) -> None:
        """Act and reply. Called on the event loop."""
        if self._pod.draining and request.verb is not PodVerb.STOP:
            reply("The pod is stopping already.", False)
        elif request.verb is PodVerb.STOP:
            self._stop(reply)
        else:
            reply(self._rest(request.verb is PodVerb.QUIET), True)

    def stacks(self) -> str:
        """Say where jobs and threads stand. Callable from any thread."""
        now = self._clock.elapsed()
        return stacks_of(self._pod.runs(), now, self._home, self._home_thread)

    def _rest(self, quiet: bool) -> str:
        pod = self._pod
        pod.heartbeat.quiet = quiet
        for queue in pod.queues.values():
            if quiet:
                queue.pool.drain(stops=False)
            elif not queue.leaves:
                queue.pool.resume()
        return f"Takes no new work; {self._going_on()}." if quiet else "Takes work again."

    def _stop(self, reply: Reply) -> None:
        if self._pod.draining:
            reply("The pod is stopping already.", True)
            return
        rest = ", with the grace of a stop" if any(True for _ in self._pod.runs()) else ""
        reply(f"Stops; {self._going_on()}{rest}.", True)
        # After the answer is on the way: the last beats of a stop are few.
        self._home.call_soon(self._pod.when_asked)

    def _going_on(self) -> str:
        running = sum(1 for _ in self._pod.runs())
        if running == 1:
            return "1 running job goes on"
        return f"{running} running jobs go on" if running else "no job runs"
