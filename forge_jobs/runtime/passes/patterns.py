"""Queues that a pod serves because their names match a pattern: found as they appear."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Protocol

from forge_jobs.clock import Clock
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueSettings
from forge_jobs.storage.protocols import Storage

LOOK_EVERY = timedelta(seconds=2)

_WAITING = (JobStatus.PENDING, JobStatus.FAILED, JobStatus.BLOCKED, JobStatus.IN_PROGRESS)


class ServedByName(Protocol):
    """The queues that the pod serves now."""

    @property
    def names(self) -> Collection[str]:
        """Return the names, those of queues that are about to go too."""
        ...

    def activity(self, name: str) -> int | None:
        """Return a number that changes whenever the pod asks for jobs of the queue.

        None: the queue is busy, or the program has named the queue, so that the pod stays.
        """
        ...

    async def include(self, queues: Mapping[str, QueueSettings | None]) -> None:
        """Serve these queues too, without waiting until the store knows. Not when the pod stops.

        :raises Unavailable: the store did not take the settings of a queue. The others are served
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
    :param idle_after: how long a queue stays empty before the pod leaves
    """

    def __init__(
        self,
        storage: Storage,
        served: ServedByName,
        patterns: Mapping[str, QueueSettings | None],
        *,
        idle_after: timedelta,
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._served = served
        self._patterns = dict(patterns)
        self._idle_after = idle_after.total_seconds()
        self._clock = clock
        self._quiet_since: dict[str, tuple[int, float]] = {}
        """Of queues that came by a pattern: the activity, and since when that number has stood."""

    async def look_once(self) -> None:
        """Leave what has been empty for long, serve what has appeared.

        :raises Unavailable: the store did not answer. The next pass looks again
        """
        idle = self._idle()
        for name in set(idle).difference(await self._with_jobs(idle)):
            self._quiet_since.pop(name, None)
            self._served.exclude(name)
        known = [each.queue for each in await self._storage.procs.allocations()]
        others = [
            name for name in known if name not in self._served.names and self._pattern_of(name)
        ]
        # Other pods may serve these while they are empty, each for as long as the others.
        if appeared := await self._with_jobs(others):
            await self._served.include({name: self._settings_of(name) for name in appeared})

    async def _with_jobs(self, names: Sequence[str]) -> list[str]:
        """Return the queues with jobs that have not ended."""
        if not names:
            return []
        counts = await self._storage.jobs.counts(names, ended_at_most=1)
        return [
            name
            for name in names
            if name in counts and any(counts[name].by_status.get(each) for each in _WAITING)
        ]

    def _pattern_of(self, name: str) -> str | None:
        return next((each for each in self._patterns if fnmatchcase(name, each)), None)

    def _settings_of(self, name: str) -> QueueSettings | None:
        pattern = self._pattern_of(name)
        return None if pattern is None else self._patterns[pattern]

    def _idle(self) -> list[str]:
        now = self._clock.elapsed()
        before, self._quiet_since = self._quiet_since, {}
        for name in self._served.names:
            activity = self._served.activity(name)
            if activity is None:
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
