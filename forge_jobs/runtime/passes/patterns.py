"""Queues that a pod serves because their names match a pattern: found as they appear."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Protocol

from forge_jobs.clock import Clock
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueSettings
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)

LOOK_EVERY = timedelta(seconds=2)

_WAITING = (JobStatus.PENDING, JobStatus.FAILED, JobStatus.BLOCKED, JobStatus.IN_PROGRESS)


class ServedByName(Protocol):
    """The queues that the pod serves now."""

    @property
    def names(self) -> Collection[str]:
        """Return the names, those of queues that are about to go too."""
        ...

    def activity(self, name: str) -> int | None:
        """Return a number that changes whenever the pod asks for jobs of the queue. None: busy."""
        ...

    async def include(self, queues: Mapping[str, QueueSettings | None]) -> None:
        """Serve these queues too, without waiting until the store knows.

        :raises Unavailable: the store did not take the settings
        """
        ...

    def exclude(self, name: str) -> None:
        """Begin to serve the queue no longer."""
        ...


class PatternQueues:
    """Serves every queue that has jobs and whose name matches, and leaves those that stay empty.

    A queue without jobs costs a pod tasks and a part of each beat, so that a queue for every tenant
    is served while the tenant has work.

    :param patterns: globs as of ``fnmatch.fnmatchcase`` -> the settings of a queue that appears.
        None: those of the store. The first pattern that matches counts
    :param own: queues that the program names, which the pod never leaves
    :param idle_after: how long a queue stays empty before the pod leaves
    """

    def __init__(
        self,
        storage: Storage,
        served: ServedByName,
        patterns: Mapping[str, QueueSettings | None],
        *,
        own: Collection[str],
        idle_after: timedelta,
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._served = served
        self._patterns = dict(patterns)
        self._own = frozenset(own)
        self._idle_after = idle_after.total_seconds()
        self._clock = clock
        self._quiet_since: dict[str, tuple[int, float]] = {}
        """Of queues that came by a pattern: the activity, and since when that number has stood."""

    async def look_once(self) -> None:
        """Serve what has appeared, leave what has been empty for long.

        :raises Unavailable: the store did not answer. The next pass looks again
        """
        served = frozenset(self._served.names)
        found = [each.queue for each in await self._storage.procs.allocations()]
        appeared = [name for name in found if name not in served and self._pattern_of(name)]
        if appeared:
            pattern_of = {name: self._pattern_of(name) or "" for name in appeared}
            await self._served.include(
                {name: self._patterns[pattern] for name, pattern in pattern_of.items()}
            )
        idle = self._idle(served)
        if idle:
            counts = await self._storage.jobs.counts(idle, ended_at_most=1)
            for name in idle:
                by_status = counts[name].by_status if name in counts else {}
                if not any(by_status.get(status) for status in _WAITING):
                    del self._quiet_since[name]
                    self._served.exclude(name)

    def _pattern_of(self, name: str) -> str | None:
        return next((each for each in self._patterns if fnmatchcase(name, each)), None)

    def _idle(self, served: Collection[str]) -> list[str]:
        now = self._clock.elapsed()
        before, self._quiet_since = self._quiet_since, {}
        for name in served:
            activity = self._served.activity(name)
            if name in self._own or activity is None or not self._pattern_of(name):
                continue
            stands = before.get(name)
            self._quiet_since[name] = (
                stands if stands is not None and stands[0] == activity else (activity, now)
            )
        return [
            name
            for name, (_, since) in self._quiet_since.items()
            if now - since >= self._idle_after
        ]
