"""The strikes as a pod knows them: read again and again, and before a job is held."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from forge_jobs.lanes import Lane
from forge_jobs.model.strikes import Strike
from forge_jobs.policy.strikes import Judge
from forge_jobs.storage.protocols.config import ConfigStore

READ_EVERY = timedelta(seconds=10)
"""How often a pod reads the strikes, whether or not a wake-up came."""


class Strikes:
    """The strikes at the last reading.

    :ivar are_asked: whether a run has to ask: there are strikes, or none were read yet
    """

    def __init__(self, config: ConfigStore) -> None:
        self.are_asked = True
        self._config = config
        self._judge: Judge | None = None
        self._readings: Lane[None, Judge] = Lane(self._read, repeat_for=timedelta(0))

    async def read(self) -> Judge:
        """Read the strikes of the store. Callers of one moment share a call.

        :raises Unavailable: the store did not answer
        """
        return await self._readings.submit(None)

    async def verdict(self, kind: str, payload: Callable[[], str]) -> Strike | None:
        """Return the strike that means a job, None when none does.

        A job is held by what the store says now, never by a strike that has been lifted.

        :raises Unavailable: the store did not answer
        """
        judge = self._judge or await self.read()
        if judge.verdict(kind, payload) is None:
            return None
        return (await self.read()).verdict(kind, payload)

    async def _read(self, callers: Sequence[None]) -> list[Judge]:
        judge = Judge(await self._config.strikes())
        self._judge = judge
        self.are_asked = bool(judge)
        return [judge] * len(callers)
