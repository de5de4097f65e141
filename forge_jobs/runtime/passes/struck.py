"""Releases jobs that no strike holds any more."""

from collections.abc import Set
from datetime import timedelta
from functools import partial

from forge_jobs.clock import Clock
from forge_jobs.runtime.passes.cleanup import in_batches
from forge_jobs.storage.protocols.jobs import JobStore

LOOK_EVERY = timedelta(minutes=1)
"""How often the leader looks while the strikes stay as they are, for jobs that a pod with an older
view has held since."""

BATCH = 1_000

_BUDGET = timedelta(seconds=5)
_MORE_AFTER = timedelta(milliseconds=10)


class StruckJobs:
    """The jobs on hold for strikes, with what was released last.

    :param clock: the pod's
    """

    def __init__(self, jobs: JobStore, *, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._seen: Set[str] | None = None
        self._looked_at = 0.0

    async def release_once(self, in_force: Set[str]) -> timedelta | None:
        """Release what no strike in force holds. Looks when the strikes have changed since the last
        pass, and each minute.

        :param in_force: the marks of all strikes
        :returns: when to go on. None: nothing is left, or it is too early to look
        :raises StorageError: the store did not answer. The next call goes on
        """
        now = self._clock.elapsed()
        if in_force == self._seen and now - self._looked_at < LOOK_EVERY.total_seconds():
            return None
        release = partial(self._jobs.release_struck, in_force)
        if not (await in_batches(release, BATCH, _BUDGET, self._clock)).finished:
            return _MORE_AFTER
        self._seen, self._looked_at = in_force, now
        return None
