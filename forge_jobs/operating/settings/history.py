"""The history of a queue, and the removal of its ended jobs."""

from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.durations import format_duration
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.names import check_name
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.metrics.latencies import LAST_HOUR
from forge_jobs.operating.metrics.series import Series, SeriesCalls

_ACTIONS = 1_000
_ENDED = (JobStatus.DONE, JobStatus.CANCELLED)


class ChangeLine(Struct, frozen=True, kw_only=True):
    """An action that concerned a queue."""

    at: datetime
    actor: str
    verb: str
    action_id: str
    reason: str


class QueueHistory(Series, frozen=True, kw_only=True):
    """The history of a queue.

    :param actions: of operators on the queue in this time, the newest first, of the newest 1,000
        actions of the store
    """

    actions: tuple[ChangeLine, ...]


class CleanedUp(Struct, frozen=True, kw_only=True):
    """The outcome of a clean-up.

    :param jobs: how many were removed
    :param refused: how many were left alone, as the record of the action says
    """

    name: str
    jobs: int
    refused: int
    action_id: str


class HistoryCalls(SeriesCalls, RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def queue_history(
        self,
        name: str,
        *,
        over: timedelta = LAST_HOUR,
        step: timedelta = MINUTE,
        until: datetime | None = None,
    ) -> QueueHistory:
        """Flow, delays and depth of a queue over time, and what operators did to the queue.

        :param over: how far back
        :param step: whole minutes, at most 2,000 of them
        :param until: None for now
        :raises NotFound: no such queue
        :raises InvalidInput: span or step are out of range
        """
        self.actor.need(Right.READ)
        await self._stored_queue(name)
        found = await self._series(name, None, over, step, until)
        records = await self.storage.jobs.actions(limit=_ACTIONS)
        lines = tuple(
            ChangeLine(
                at=each.action.at,
                actor=each.action.actor,
                verb=each.action.verb,
                action_id=each.action.id,
                reason=each.action.reason,
            )
            for each in records
            if each.action.at is not None
            and found.since <= each.action.at < found.until
            and (name in each.action.concerns or name in each.action.queues)
        )
        values = {key: getattr(found, key) for key in found.__struct_fields__}
        return QueueHistory(**values, actions=lines)

    async def clean_up_queue(self, name: str, *, keep: timedelta = timedelta(0)) -> CleanedUp:
        """Remove the done and cancelled jobs of a queue now, whatever their retention says.

        Dead jobs stay: they are for people. There is no undo. An action on many, whose record
        tells how far the removal has come.

        :param keep: jobs that ended within this time stay
        :raises NotFound: no such queue
        :raises InvalidInput: ``keep`` is below zero
        """
        self.actor.act("clean_up_queue")
        await self._stored_queue(name)
        if keep < timedelta(0):
            raise InvalidInput("keep", f"is {keep}", "give a duration, as 1h")
        terms = parse_query(f"finished:>{format_duration(keep)}").terms if keep else ()
        which = JobFilter(queues=(name,), statuses=_ENDED, terms=terms)
        action = self._action("delete_jobs", which=which, queues=(name,))
        record = await self._drive((await self.storage.jobs.put_action(action)).action)
        return CleanedUp(
            name=name,
            jobs=sum(part.changed for part in record.parts),
            refused=sum(sum(part.refused.values()) for part in record.parts),
            action_id=action.id,
        )

    async def _stored_queue(self, name: str) -> None:
        """Refuse a queue that does not exist, or is closed to the actor."""
        self._may_see(check_name("queue", name))
        if name not in {state.name for state in await self.storage.config.queues()}:
            raise NotFound(f"there is no queue {name!r}; forge-jobs queues list names all")
