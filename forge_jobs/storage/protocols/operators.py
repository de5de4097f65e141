"""The part of the job store by which operators change jobs, one bounded batch a call."""

from typing import Protocol

from forge_jobs.model.actions import Action, ActionRecord, ActionStep
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols.editing import EditedStore
from forge_jobs.storage.protocols.kin import KinStore
from forge_jobs.storage.protocols.waiting import WaitingStore


class OperatedStore(EditedStore, KinStore, WaitingStore, Protocol):
    """Operators' verbs: each changes the jobs that a filter means."""

    async def cancel(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        """Cancel waiting jobs, and ask the owners of running ones (``requested``).

        Refuses ended jobs (``finished``). The flag of a running job is durable, reaches the owner
        by wake-up or beat, and never outlives that life: a requeue clears the flag. A request is
        put on the job's timeline in the same step.

        Visits matching jobs in id order, at most ``limit`` per call, and looks at no more of them
        than ``JobStore.list`` does. Going on with ``cursor`` ends, although every visited job was
        refused. Ids in ``which.ids`` that do not exist are refused as ``not_found``.

        A store may look for matching jobs before the atomic step, so as not to keep others waiting,
        but must check in that step that they still match. The call must not wait for a caller's
        open transaction: jobs locked by such a transaction are refused as ``locked``.

        With a ``step`` of an action the call visits the jobs of one queue behind the cursor of the
        step. The action is advanced in the same atomic step that changes the jobs, and only when
        the stored cursor is that of the step. A call may be several such steps, each of which
        advances the cursor. So a call that dies, or is sent twice, changes each job once. Named
        ids that are not in the queue are left out.

        :param cursor: of the call before. None for the first one
        :param limit: 1 to 1,000
        :param step: of an action that :meth:`put_action` has stored
        :raises Conflict: the action has gone on, was aborted or has ended in this queue, or is not
            stored
        :raises Unavailable: a queue that the filter means is silent, so the call cannot visit every
            matching job
        """
        ...

    async def delete(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        """Remove jobs for good. Bounded as :meth:`cancel`.

        Refuses running jobs, and jobs that a foreign key or a trigger of the user's holds
        (``referenced``). The other jobs are removed. Children that still wait for a deleted job get
        a handover of its end, and of a cancellation when the job had not ended. Nothing of the job
        stays: its id may be stored again.
        """
        ...

    async def requeue(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        """Give failed, dead and cancelled jobs their whole budget again, due now.

        Attempt, crashes and snoozes begin from zero, and the cancel flag is cleared. The token goes
        on. The timeline gets an event. Refuses done jobs (``finished``), running and waiting ones.
        The unique key is checked again: of two jobs with one key, one is requeued and the other
        refused (``key_taken``). The result is cleared, and an ``expires_at`` that has passed. A job
        whose payload was not kept is refused (``finished``).

        A job that comes after others is blocked again until all of these have settled. Parents that
        have yet to end are waited for, also parents that the same call requeues. Done parents have
        settled. A parent that ended without success settles an edge that says ``continue`` and
        holds the job otherwise (see ``JobStore.deliver``), unless the edge was settled before. A
        parent that is gone counts by how it ended. If it ended without success, ``continue``
        settles, ``hold`` holds, and with ``cancel`` the job is refused (``parent_failed``).
        Handovers of a requeued parent that are still to be delivered must be void.
        """
        ...

    async def restore(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        """Take cancels back: the jobs wait again, with their due time, attempts and counts of
        before.

        The timeline gets an event. A job whose time has passed meanwhile is due. Refuses jobs that
        no cancel of an operator has ended (``finished``), running and waiting ones, and jobs whose
        ``expires_at`` has passed (``expired``). The unique key is checked as by :meth:`requeue`, in
        the same order. A job that comes after others is blocked again as by :meth:`requeue`, and
        refused as there (``parent_failed``). A job whose payload was not kept is refused
        (``finished``).

        A job is refused when the cancel can no longer be kept from its children
        (``children_know``): an edge to the job has settled, or the child was cancelled because of
        the job. A child that an operator has cancelled too does not count, nor does one that the
        job holds: that one waits for the next end. Handovers of the cancel that are still to be
        delivered must be void, also those that are being delivered.

        Of a call all jobs are looked at before the first is restored.
        """
        ...

    async def release_held(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        """Let blocked jobs run without the parents that hold them. An event on the timeline.

        The held edges settle, so a job that waits for no other parent becomes pending as by
        ``JobStore.deliver``. Refuses what no parent holds (``waiting``), what runs or has ended.
        """
        ...

    async def run_now(
        self,
        which: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 500,
        step: ActionStep | None = None,
    ) -> BulkOutcome:
        """Make pending and failed jobs due now. Attempts stay. Refuses all others.

        A job that is due already keeps its place in the order, and counts as changed.
        """
        ...

    async def put_action(self, action: Action) -> ActionRecord:
        """Store the record of an action, with a running part for each of ``action.queues``.

        An action with the same id that is stored stays as it is, and is returned.
        Records stay 400 days. What is past that time is removed by later calls.

        :raises InvalidInput: the id is no ULID, or the reason is too long
        """
        ...

    async def get_action(self, action_id: str) -> ActionRecord:
        """Return an action, and how far it has come.

        Queues whose part of the store is silent are named in ``silent``.

        :raises NotFound: no such action
        """
        ...

    async def actions(self, *, below: str | None = None, limit: int = 50) -> list[ActionRecord]:
        """Return actions with lower ids, the highest id first.

        Marks of keys (see ``mark_id``), whose ids have no time, are in no list.

        :param limit: 1 to 1,000
        """
        ...

    async def abort_action(self, action_id: str) -> ActionRecord:
        """End the parts of an action that still run. No later step of theirs changes a job.

        :raises NotFound: no such action
        :raises Unavailable: a queue of the action is silent. Others may be ended
        """
        ...

    async def settle_action(self, action: Action) -> ActionRecord:
        """Put a settled record in the place of one that was stored as running, see ``settled``.

        One step: of several such calls one counts. A record that is settled stays as it is.

        :raises NotFound: no such action
        """
        ...

    async def action_jobs(
        self, action_id: str, *, beyond: str | None = None, limit: int = 1000
    ) -> list[JobId]:
        """Return ids of jobs that the action has changed or asked for, ascending.

        Known for seven days, then the list is empty.

        :param beyond: only higher ids
        :param limit: 1 to 1,000
        """
        ...
