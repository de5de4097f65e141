"""The part of the job store that mends what lost writes have left."""

from collections.abc import Collection
from typing import Protocol

from forge_jobs.model.sweeps import Swept


class SweptStore(Protocol):
    """Repair, for a store which may lose some of its last writes and keep others."""

    async def sweep(self, limit: int) -> Swept:
        """Mend what lost writes have left.

        That is blocked jobs for which the handover of a parent's end is missing, and whatever else
        the store keeps in two places. A part of a store that lies on a server of its own may lose
        the last writes by a failover, while the other parts keep theirs. A store that changes all
        in one transaction has nothing to mend: the transaction is lost whole. On SQL the sweep
        removes progress, log lines, checkpoints and steps whose jobs a program of an earlier
        release has deleted, because such a program does not know their tables.

        Must take only what two looks of the same bundle have found unchanged for a minute, since a
        call that is under way looks the same. Must look again in the step that mends. The failure
        rule of an edge, and the hold of a job, stay. Looks at about ``limit`` jobs a call and goes
        on behind them with the next one.
        """
        ...

    async def release_struck(self, in_force: Collection[str], limit: int) -> int:
        """Let jobs be ready that no strike in force holds any more, in the order of their queues.

        A job on hold as ``struck`` carries the mark of the strike by which it was held. When the
        mark is not among ``in_force``, the strike was lifted or means other jobs now. Such jobs
        keep priority, due time and id, so each has the place back that it had, and waiters of the
        queue are woken. Claims that follow judge them anew. A repeat finds the rest, so a caller
        that dies in between leaves nothing but work for the next call. A job that another
        transaction has locked, or whose queue is silent, is left to a later call.

        Costs a step of an index for each mark, and nothing for jobs that stay.

        :param in_force: of all strikes, see ``model.strikes.mark_of``
        :param limit: how many jobs at most
        :returns: how many jobs. Fewer than ``limit``: no more can be released now
        """
        ...
