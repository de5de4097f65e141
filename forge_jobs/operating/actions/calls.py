"""Actions on many jobs, the records of all actions, and their undo."""

from functools import partial

from msgspec import structs

from forge_jobs.clients.records.values import value_of
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.actions import ActionRecord, ActionState, check_action_id, mark_id
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import new_job_id
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.documents import ActionJobs, Actions, ActionView
from forge_jobs.operating.actions.editing import EDIT_JOB, EditCalls
from forge_jobs.operating.actions.previews import (
    MAX_KEY,
    SAMPLES,
    VALID_FOR,
    Apply,
    Preview,
    Ticket,
    bounded,
    match,
    means_the_same,
    others,
    read_token,
    token_of,
)
from forge_jobs.operating.actions.recording import VERBS

RESTORE = "restore_jobs"
"""The operation that takes a cancel back."""

_LOOKED_AT = 1_000


class ActionCalls(EditCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def preview_action(
        self, verb: str, which: JobFilter, *, all_jobs: bool = False
    ) -> Preview:
        """Preview an action on many jobs: what it would meet now. Changes nothing.

        :param verb: the operation, as ``cancel_jobs``
        :param which: the jobs. A filter without any part needs ``all_jobs``
        :raises InvalidInput: there is no such verb, or the filter is empty
        """
        self.actor.need(Right.READ)
        _check_verb(verb)
        self.actor.act(verb)
        if which == JobFilter() and not all_jobs:
            raise InvalidInput("which", "is empty, which means every job", "give a filter, or all")
        now = await self.storage.cron.now()
        meant = bounded(self._within(which), now)
        found = await match(self.storage, meant, VERBS[verb])
        children, schedules, keys = await others(self.storage, found)
        if self.actor.access.queues is not None:
            children = ()
        samples = await self._lines(found.newest[:SAMPLES])
        ticket = Ticket(
            action_id=new_job_id(),
            verb=verb,
            which=meant,
            count=found.count,
            actor=self.actor.name,
            at=now,
        )
        return Preview(
            verb=verb,
            which=meant,
            count=found.count,
            more=found.more,
            samples=samples,
            refused={Refusal(name): number for name, number in found.refused.items()},
            children=children,
            schedules=schedules,
            keys=keys,
            undo=RESTORE if verb == "cancel_jobs" else "",
            token=token_of(ticket),
            expires_at=now + VALID_FOR,
            silent=tuple(sorted(filter(self.actor.sees, found.silent))),
        )

    async def apply_action(self, preview: Apply) -> ActionView:
        """Do what a preview has shown, to the jobs that were there then, each once.

        In steps, of which each changes some jobs and the record together. Applied twice, a token
        is one action, and so is a key, with any tokens and from any program. When this call dies,
        :meth:`continue_action` goes on.

        :param preview: the token of a preview, the reason, and a key if there is one
        :raises InvalidInput: the token is none, of another actor, or older than ten minutes
        :raises Conflict: a tenth more jobs match than at the preview. Preview again. Or the actor
            has used the key for an action that asks for something else
        :raises Unavailable: the store is silent. Some steps may have been taken
        """
        self.actor.need(Right.READ)
        ticket = read_token(preview.token)
        _check_verb(ticket.verb)
        self.actor.act(ticket.verb)
        if ticket.actor != self.actor.name:
            raise InvalidInput("token", "is of another actor", "make a preview of your own")
        if preview.key:
            ticket = await self._first_of(ticket, preview.key)
        try:
            record = await self._record(ticket.action_id)
        except NotFound:
            record = await self._begin(ticket, preview.reason)
        action = record.action
        if action.verb != ticket.verb or not means_the_same(
            action.which, self._within(ticket.which)
        ):
            raise Conflict(
                f"the key belongs to the action {action.id}, which asks for something else; "
                "give each action a key of its own"
            )
        return self._shown(await self._drive(action))

    async def _first_of(self, ticket: Ticket, key: str) -> Ticket:
        """The ticket, with the id of the action that the key stands for since its first use."""
        if len(key) > MAX_KEY:
            raise InvalidInput("key", "is too long", f"give at most {MAX_KEY} characters")
        mark = self._action(
            "apply_action", id=mark_id(self.actor.name, key), target=ticket.action_id
        )
        first = await self.storage.jobs.put_action(mark)
        return structs.replace(ticket, action_id=first.action.target)

    async def _begin(self, ticket: Ticket, reason: str) -> ActionRecord:
        now = await self.storage.cron.now()
        if now - ticket.at > VALID_FOR:
            raise InvalidInput("token", "is older than ten minutes", "preview again")
        which = self._within(ticket.which)
        found = await match(self.storage, which, VERBS[ticket.verb])
        if found.count * 10 > ticket.count * 11:
            raise Conflict(
                f"{found.count} jobs match, and {ticket.count} did at the preview; preview again"
            )
        queues, _ = await self._queues_of(which)
        action = self._action(
            ticket.verb,
            id=ticket.action_id,
            which=which,
            queues=tuple(queues),
            matched=ticket.count,
            reason=reason,
        )
        return await self.storage.jobs.put_action(action)

    async def continue_action(self, action_id: str) -> ActionView:
        """Take the steps that a driver has left. Nothing happens where none are left.

        :raises NotFound: no such action
        """
        record = await self._record(action_id)
        self.actor.act(record.action.verb)
        return self._shown(await self._drive(record.action))

    async def abort_action(self, action_id: str) -> ActionView:
        """End an action between two steps. What the steps before have changed stays.

        :raises NotFound: no such action
        """
        record = await self._record(action_id)
        self.actor.act(record.action.verb)
        return self._shown(await self.storage.jobs.abort_action(record.action.id))

    async def list_actions(self, *, cursor: str | None = None, limit: int = 50) -> Actions:
        """Actions of all operators, the newest first.

        :param cursor: of the page before
        :param limit: 1 to 1,000
        """
        self.actor.need(Right.READ)
        below = None if cursor is None else check_action_id(cursor)
        found = await self.storage.jobs.actions(below=below, limit=limit)
        more = found[-1].action.id if len(found) == limit else None
        mine = (self._shown(each) for each in found if self._may_see_action(each))
        return Actions(actions=tuple(mine), cursor=more)

    async def get_action(self, action_id: str) -> ActionView:
        """An action, and how far it has come.

        :raises NotFound: no such action
        """
        return self._shown(await self._record(action_id))

    async def action_jobs(
        self, action_id: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ActionJobs:
        """Jobs that an action has changed or asked for, by id. Known for seven days.

        :param limit: 1 to 1,000
        :raises NotFound: no such action
        """
        record = await self._record(action_id)
        ids = await self.storage.jobs.action_jobs(record.action.id, beyond=cursor, limit=limit)
        more = ids[-1] if len(ids) == limit else None
        return ActionJobs(action_id=record.action.id, job_ids=tuple(ids), cursor=more)

    async def undo_action(self, action_id: str) -> ActionView:
        """Take back an edit, or an action on settings, a pause, a schedule or a limit: write the
        old value. Of a cancel: restore the jobs that the cancel has changed, each once.

        The undo of a cancel is an action on many: what is refused stands in its record. Twice
        asked for, the undo is one action.

        :raises Conflict: the action has no inverse, or the value was changed since. A cancel still
            runs, or its jobs are no longer known
        :raises NotFound: no such action
        """
        record = await self._record(action_id)
        action = record.action
        self.actor.act(action.verb)
        if action.verb == EDIT_JOB:
            return await self._undo_edit(record)
        if action.verb == "cancel_jobs" and action.which is not None:
            return await self._undo_cancel(record)
        value = value_of(action.verb)
        if value is None or action.before == action.after:
            raise Conflict(f"{action.verb} of {action.target or 'many jobs'} has no inverse")
        now = await value.read(self.storage, action.target)
        if not value.is_same(now, action.after):
            raise Conflict(
                f"{action.target!r} was changed since the action {action.id}; look at what is "
                "there now, and set what you want"
            )
        undone = self._action(
            action.verb,
            target=action.target,
            concerns=action.concerns,
            undoes=action.id,
            reason=f"undo of {action.id}",
        )
        write = partial(value.write, self.storage, action.target, action.before)
        _, settled = await self._change_one(undone, write)
        return self._shown(settled)

    async def _undo_cancel(self, record: ActionRecord) -> ActionView:
        self.actor.act(RESTORE)
        action = record.action
        if record.state is ActionState.RUNNING:
            raise Conflict(f"the action {action.id} still runs; abort it first, or wait")
        for later in await self.storage.jobs.actions(limit=_LOOKED_AT):
            is_undo = later.action.undoes == action.id and later.action.verb == RESTORE
            if is_undo and later.state is not ActionState.ABORTED:
                return self._shown(await self._drive(later.action))
        met = sum(part.changed + part.requested for part in record.parts)
        if not met:
            raise Conflict(f"the action {action.id} has cancelled no job; nothing is to be undone")
        if not await self.storage.jobs.action_jobs(action.id, limit=1):
            raise Conflict(
                f"the jobs of the action {action.id} are no longer known, after seven days; "
                "restore those that you find by a filter"
            )
        undo = self._action(
            RESTORE,
            # No job by itself: each step names those that the cancel has met.
            which=JobFilter(ids=()),
            queues=action.queues,
            matched=met,
            undoes=action.id,
            reason=f"undo of {action.id}",
        )
        await self.storage.jobs.put_action(undo)
        return self._shown(await self._drive(undo))

    async def _record(self, action_id: str) -> ActionRecord:
        self.actor.need(Right.READ)
        record = await self.storage.jobs.get_action(check_action_id(action_id))
        if not self._may_see_action(record):
            raise NotFound(f"there is no action {action_id}; the record is kept for 400 days")
        return record

    def _may_see_action(self, record: ActionRecord) -> bool:
        if self.actor.access.queues is None:
            return True
        queues = record.action.queues + record.action.concerns
        return bool(queues) and all(self.actor.sees(queue) for queue in queues)


def _check_verb(verb: str) -> None:
    if verb not in VERBS:
        raise InvalidInput("verb", f"is {verb!r:.40}", f"give one of {', '.join(sorted(VERBS))}")
