"""The part of the job store that mends what lost writes have left."""

from typing import Protocol

from forge_jobs.model.sweeps import Swept


class SweptStore(Protocol):
    """A store which may lose some of its last writes and keep others."""

    async def sweep(self, limit: int) -> Swept:
        """Mend what lost writes have left: blocked jobs that nobody will tell of a parent's end,
        and what else the store keeps in two places.

        A part of a store that lies on a server of its own may lose its last writes by a
        failover, while the other parts keep theirs. A store that changes all in one transaction
        has nothing to mend: it loses them whole.

        Must take only what has stood so for a minute at two looks of the same bundle, since a call
        that is under way looks the same; must look again in the step that mends. What an edge says
        of failures, and that a job is held, stays. Looks at about ``limit`` jobs a call and goes on
        behind them with the next one.
        """
        ...
