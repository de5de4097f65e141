"""The limits after which a worker process is replaced: so many jobs, so much memory."""

import asyncio
import random
from collections.abc import Callable

from msgspec import Struct

from forge_jobs.cli.processes.link import FULL, ParentLink
from forge_jobs.config import Deployment
from forge_jobs.handlers.durations import MAX_DURATION
from forge_jobs.reports import reporter
from forge_jobs.runtime.passes.gauges import this_process
from forge_jobs.runtime.pod.handle import QueueHandle

logger = reporter(__name__)

_LEAST_PART = 0.8
"""Of a limit. The part that counts is drawn, so that processes that were started together, and
share the work equally, do not come to their limits together."""

_LOOKS_PER_READING = 10
"""Looks at the memory, which is a read of a file, are ten times as rare as those at the jobs."""


class Limits(Struct, frozen=True):
    """The resources that one process may use up.

    :param jobs: runs of handlers, whatever their end. None: no limit
    :param memory: resident bytes. None: no limit
    """

    jobs: int | None = None
    memory: int | None = None

    def drawn(self, rng: random.Random) -> "Limits":
        """Return limits between 80 % of these and these."""
        part = rng.uniform(_LEAST_PART, 1)
        return Limits(
            None if self.jobs is None else max(1, round(self.jobs * part)),
            None if self.memory is None else round(self.memory * part),
        )


def limits_of(deployment: Deployment) -> Limits:
    """Return the limits that a deployment sets."""
    return Limits(deployment.max_jobs_per_process, deployment.max_memory_per_process)


class Recycling:
    """Asks the parent for a successor at a limit, and lets the pod end once there is one.

    The pod claims nothing more from then on, and ends when the running handlers have ended, however
    long they take: nothing is urgent. A stop that comes meanwhile has its grace.

    :param limits: of this process
    :param retired: called when the successor is there
    :param memory: the resident bytes of this process
    """

    def __init__(
        self,
        limits: Limits,
        parent: ParentLink,
        handle: QueueHandle,
        retired: Callable[[], None],
        *,
        memory: Callable[[], int] | None = None,
    ) -> None:
        self._limits = limits
        self._parent = parent
        self._handle = handle
        self._retired = retired
        self._memory = memory or this_process().memory_bytes
        self._looks = 0
        self._asked = False
        self._drained: asyncio.Task[bool] | None = None

    def is_over(self) -> bool:
        """Look at the limits. True: the process was replaced, and holds no job any more."""
        if self._drained is not None:
            return self._drained.done()
        if self._parent.retires.is_set():
            self._retired()
            self._drained = asyncio.ensure_future(self._handle.drain(MAX_DURATION))
        elif not self._asked and (reason := self._reached()):
            self._asked = True
            logger.info("this worker process asks for a successor: %s", reason)
            self._parent.say(FULL)
        return False

    def _reached(self) -> str:
        jobs, memory = self._limits.jobs, self._limits.memory
        if jobs is not None and self._handle.ended_runs >= jobs:
            return f"{self._handle.ended_runs} jobs have run, the limit is {jobs}"
        self._looks += 1
        if memory is not None and self._looks % _LOOKS_PER_READING == 1:
            used = self._memory()
            if used >= memory:
                return f"{used:,} bytes of memory are in use, the limit is {memory:,}"
        return ""
