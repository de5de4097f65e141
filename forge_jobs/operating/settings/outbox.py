"""Outboxes of the database, as people who operate see and mend them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, structs

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.letters.outbox import OutboxRecord, OutboxState
from forge_jobs.model.names import check_queue
from forge_jobs.operating.access import Access, Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import Explanation, Reason
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.protocols.letters import HasOutbox, OutboxStore

_MOST = 1_000
_NAMED = 100
"""So many ids of jobs are kept in the record of an action."""


class OutboxOf(Struct, frozen=True, kw_only=True):
    """The state of the outbox for one destination.

    :param oldest: the age of the oldest record that waits. None: none waits
    """

    name: str
    waiting: int
    set_aside: int
    oldest: timedelta | None


class Outboxes(Struct, frozen=True, kw_only=True):
    """The outboxes of the database that have records, by name."""

    outboxes: tuple[OutboxOf, ...]


class OutboxRecords(Struct, frozen=True, kw_only=True):
    """Records of one outbox, those set aside first."""

    name: str
    records: tuple[OutboxRecord, ...]


class OutboxChanged(Struct, frozen=True, kw_only=True):
    """Records that were retried or discarded, by the ids of their jobs."""

    name: str
    jobs: tuple[JobId, ...]


def without_details(record: OutboxRecord) -> OutboxRecord:
    """Return the record with the kind of its problem only: a message may quote values."""
    return structs.replace(record, problem=record.problem.partition(":")[0])


async def unrelayed(storage: Storage, access: Access, job_id: JobId) -> Explanation | None:
    """Return why a job does not run that waits in an outbox of the database, or was set aside.

    None: no outbox has the job, or the actor may not see outboxes.
    """
    jobs = storage.jobs
    if not isinstance(jobs, HasOutbox) or not access.has(Right.QUEUES):
        return None
    found = await jobs.outbox_record(job_id)
    if found is None:
        return None
    destination, record = found
    if not access.payloads:
        record = without_details(record)
    return _explained(destination, record, await storage.cron.now())


def _explained(destination: str, record: OutboxRecord, now: datetime) -> Explanation:
    what = f"{record.kind} for queue {record.queue!r}"
    where = f"the outbox for {destination!r}"
    since = now - record.age
    if record.problem:
        return Explanation(
            reason=Reason.SET_ASIDE,
            text=f"not stored: {what} is set aside in {where}: {record.problem}",
            since=since,
            help=remedies.retry_outbox(destination, record.job_id),
        )
    return Explanation(
        reason=Reason.NOT_RELAYED,
        text=f"not yet relayed: {what} waits in {where}",
        since=since,
        help=remedies.list_outbox(destination),
    )


class OutboxCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def outbox_state(self) -> Outboxes:
        """The outboxes that have records. A store without transactions, as Redis, has none.

        An outbox belongs to no queue, so an actor of some queues sees none.
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        found = await self._outboxes()
        return Outboxes(
            outboxes=tuple(
                OutboxOf(name=name, **structs.asdict(found[name])) for name in sorted(found)
            )
        )

    async def list_outbox(self, name: str, limit: int = 100) -> OutboxRecords:
        """Records of one outbox, those set aside first, then in the order of the relay.

        Payloads are not among them. Without the right to payloads a problem has no details.

        :param limit: 1 to 1,000
        :raises NotFound: the outbox has no records
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        if not 1 <= limit <= _MOST:
            raise InvalidInput("limit", f"is {limit}", f"give 1 to {_MOST}")
        records = await (await self._outbox(name)).records(limit)
        if not self.actor.access.payloads:
            records = [without_details(each) for each in records]
        return OutboxRecords(name=name, records=tuple(records))

    async def retry_outbox(self, name: str, ids: tuple[str, ...] | None = None) -> OutboxChanged:
        """Relay records again that were set aside.

        :param ids: of their jobs. None: all
        :raises NotFound: the outbox has no records
        """
        outbox, wanted = await self._to_change("retry_outbox", name, ids)
        return await self._mended("retry_outbox", name, wanted, lambda: outbox.retry(wanted))

    async def discard_outbox(self, name: str, ids: tuple[str, ...]) -> OutboxChanged:
        """Remove records that were set aside, for good. Their jobs are never stored.

        :param ids: of their jobs
        :raises NotFound: the outbox has no records
        """
        outbox, wanted = await self._to_change("discard_outbox", name, ids)
        chosen = wanted or frozenset()
        return await self._mended("discard_outbox", name, chosen, lambda: outbox.discard(chosen))

    async def _to_change(
        self, verb: str, name: str, ids: Sequence[str] | None
    ) -> tuple[OutboxStore, frozenset[JobId] | None]:
        self.actor.act(verb)
        self.actor.need(Right.QUEUES)
        wanted = None if ids is None else frozenset(check_job_id(each, "ids") for each in ids)
        return await self._outbox(name), wanted

    async def _mended(
        self,
        verb: str,
        name: str,
        wanted: frozenset[JobId] | None,
        change: Callable[[], Awaitable[list[JobId]]],
    ) -> OutboxChanged:
        asked = ["all"] if wanted is None else sorted(wanted)
        if len(asked) > _NAMED:
            asked = [*asked[:_NAMED], f"{len(asked) - _NAMED} more"]
        action = self._action(verb, target=name, after=msgspec.json.encode(asked).decode())
        jobs, _ = await self._change_one(action, change)
        return OutboxChanged(name=name, jobs=tuple(jobs))

    async def _outboxes(self) -> dict[str, OutboxState]:
        jobs = self.storage.jobs
        return dict(await jobs.outboxes()) if isinstance(jobs, HasOutbox) else {}

    async def _outbox(self, name: str) -> OutboxStore:
        check_queue("name", name)
        jobs = self.storage.jobs
        if not isinstance(jobs, HasOutbox) or name not in await jobs.outboxes():
            raise NotFound(f"the database has no outbox {name!r} with records")
        return jobs.outbox(name)
