"""The part of the job store that keeps jobs written down for another queue, or another store."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.letters import Letter
from forge_jobs.model.letters.outbox import OutboxJob, OutboxRecord, OutboxState
from forge_jobs.model.queues import Wake


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


class OutboxStore(Protocol):
    """The records of an outbox for one destination, in a SQL database.

    A record is relayed in two steps: ``JobStore.enqueue`` of its job on the destination, then
    :meth:`forget`. A relay that died in between is repeated, and a repeat of the enqueue stores
    nothing while the job is stored.
    """

    async def write(self, jobs: Sequence[NewJob], connection: object) -> None:
        """Write jobs down in the caller's transaction, all or none, in order.

        :param connection: as of ``JobStore.enqueue``
        """
        ...

    async def read(
        self, limit: int, *, after: int = 0, skip: Collection[int] = ()
    ) -> list[OutboxJob]:
        """Return records that wait, the lowest number first. Changes nothing.

        Payloads are bounded, to some 4 MiB unless a single one has more.

        :param limit: how many come back at most
        :param after: only those with a higher number
        :param skip: without these, by number
        """
        ...

    async def forget(self, numbers: Sequence[int]) -> None:
        """Remove records whose jobs are stored. Repeats change nothing."""
        ...

    async def set_aside(self, number: int, problem: str) -> None:
        """Keep a record from being read until a person retries or discards it."""
        ...

    async def retry(self, job_ids: Collection[str] | None) -> list[JobId]:
        """Let records that were set aside be relayed again, all when None. Return their jobs."""
        ...

    async def discard(self, job_ids: Collection[str]) -> list[JobId]:
        """Remove records that were set aside. Return their jobs."""
        ...

    async def records(self, limit: int) -> list[OutboxRecord]:
        """Return records, those set aside first, then by number."""
        ...

    async def state(self) -> OutboxState:
        """Return how many records there are, and the age of the oldest that waits."""
        ...

    async def wait(self, at_most: timedelta) -> Wake:
        """Wait until records may have come, see ``JobStore.wait_for_work``."""
        ...


@runtime_checkable
class HasOutbox(Protocol):
    """The job store of a SQL database, which has outboxes beside the protocol."""

    def outbox(self, destination: str) -> OutboxStore:
        """The records for the destination of this name."""
        ...

    async def outbox_record(self, job_id: JobId) -> tuple[str, OutboxRecord] | None:
        """Return the destination and the record of a job that is still in an outbox.

        None: the job is in none.
        """
        ...

    async def outboxes(self) -> Mapping[str, OutboxState]:
        """Return the state of each outbox that has records, by the name of the destination."""
        ...
