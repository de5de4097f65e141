"""The part of the job store that keeps letters: jobs written down for another queue."""

from collections.abc import Collection, Sequence
from typing import Protocol

from forge_jobs.model.letters import Letter


class LetterStore(Protocol):
    """Letters of dead jobs, from the step in which a job dies until the letter is a job.

    The step that makes a job dead (by finalize, exchange or revive) must write the letter, if the
    job's queue names a queue for dead letters then, and if the kind of the job is not
    ``DEAD_LETTER_KIND``. Each such end of a job makes one letter. What becomes of the job later
    (requeue, removal, retention) changes nothing about its letters.

    A letter is relayed in two steps: ``JobStore.enqueue`` of ``Letter.job``, then
    :meth:`forget_letters`. A relay that died in between is repeated, and a repeat of the enqueue
    stores nothing while the job is stored.
    """

    async def letters(
        self, limit: int, *, skip: Collection[str] = (), not_to: Collection[str] = ()
    ) -> list[Letter]:
        """Return letters that wait, of each pair of queues the oldest first. Changes nothing.

        Payloads are bounded, to some 4 MiB unless a single one has more, and in a store of several
        parts in each part. Letters in silent parts are left out. A letter with fields that cannot
        be read comes with those that can.

        :param limit: how many letters come back at most
        :param skip: without these, by ``Letter.id``
        :param not_to: without letters for these queues
        """
        ...

    async def forget_letters(self, letters: Sequence[Letter]) -> None:
        """Remove letters whose jobs are stored. Repeats change nothing.

        Letters in silent parts stay, and are found again.
        """
        ...
