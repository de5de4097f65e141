"""The part of the job store that keeps what running jobs tell of themselves."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.progress import JobState, LogPage, ProgressNote


class ProgressStore(Protocol):
    """Progress and log lines of jobs, and the state that watchers read."""

    async def note_progress(self, notes: Sequence[ProgressNote]) -> Sequence[bool | None]:
        """Store the progress and the lines of claims. Per item: True when stored, False when the
        claim is not the job's last one, None when the note has to be sent again later.

        The last claim is the one that holds the job, or that has ended the job's last run under
        ``settled_token``. So the lines of a run may also come after the end of the run, until the
        next claim.

        Of a line with a ``seq`` that is stored under the token already nothing is stored, so a
        repeat changes nothing. Lines of a further run of one attempt, after a hand-back or a
        requeue, are numbered on. Of each attempt the newest ``LINES_KEPT`` lines of ``BYTES_KEPT``
        together must stay, and of each job the ``ATTEMPTS_KEPT`` attempts that ran last.

        Lines and progress go with the job. Must not wait for a caller's open transaction, nor for
        a part that is silent: None.

        :param notes: at most one of each claim, with at most ``BYTES_KEPT`` of lines each
        """
        ...

    async def save_checkpoint(self, claim: Claim, text: str) -> bool | None:
        """Replace the checkpoint of a job.

        True when stored, durably as an end. False when the claim is not the job's current one. None
        when the call has to be sent again later, as in :meth:`note_progress`.

        The checkpoint outlives the claim, and a requeue. It goes with the job, and when a request
        with the job's unique key replaces the content of the job.

        :param text: JSON text, ``MAX_PAYLOAD_BYTES`` at most
        """
        ...

    async def checkpoint(self, job_id: JobId) -> str | None:
        """Return the checkpoint of a job, None without one."""
        ...

    async def first_time(self, claim: Claim, step: str, *, connection: object) -> bool:
        """Note a step of a job in the caller's open transaction. True: no transaction that has
        committed noted it before, whatever the claim.

        Waits for another open transaction that notes the same step of the same job, so that only
        one of them is the first. Steps go as the checkpoint goes.

        :param connection: of the store's database, as for ``JobStore.enqueue``
        :raises Conflict: the claim is not the job's current one
        :raises InvalidInput: ``connection`` is not of this database, or this store has none
        """
        ...

    async def states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        """Return the states of the jobs that exist among ``ids``, in one statement.

        A record that cannot be read gives a state with the fields that can.

        :raises PartlyUnavailable: part of the store is silent. The error has the states of the rest
        """
        ...

    def announce_changes(self, queues: Iterable[str] | None) -> None:
        """Wake watchers of jobs in these queues, in any process, soon. Called after a change.

        Must cost nothing while no process watches the queues, and must not raise. A hint, as every
        wake-up: callers need not announce each change.

        :param queues: None: the caller cannot name the queues
        """
        ...

    async def wait_for_changes(
        self, queues: frozenset[str], at_most: timedelta, waiter: object
    ) -> frozenset[str]:
        """Wait until jobs of some of the queues may have changed, and return those queues.

        As ``JobStore.wait_for_work``, also in that the first call of a waiter may return at once.
        Makes known to other processes that the queues are watched. Empty: ``at_most`` has passed.
        """
        ...

    async def job_log(
        self, job_id: JobId, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        """Return lines of one attempt, oldest first. Without lines where the job is not there.

        :param attempt: None: the one that ran last, of those with lines
        :param after: only lines with a higher number
        :param limit: 1 to 1,000
        """
        ...
