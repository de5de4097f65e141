"""Reads and changes of schedules."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from msgspec import json, structs

from forge_jobs.clients.schedules import (
    pause_schedule,
    put_schedule,
    resume_schedule,
    trigger_now,
)
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import EnqueueOutcome
from forge_jobs.model.names import check_name
from forge_jobs.model.schedules import Schedule
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.documents import Deleted, widened
from forge_jobs.operating.kinds.schemas import known_kind
from forge_jobs.operating.settings.documents import (
    Fires,
    Schedules,
    ScheduleView,
    SpecView,
    tag_of,
)
from forge_jobs.operating.settings.specs import ScheduleEdit, checked_spec, edited_spec, spec_of
from forge_jobs.policy.cron import parse_cron
from forge_jobs.privacy.secrets import HIDDEN, readable
from forge_jobs.storage.protocols import CronStore

_MOST_FIRES = 100


class ScheduleCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    handlers: HandlerRegistry | None

    async def list_schedules(self) -> Schedules:
        """All schedules and when they fire next, those that were deleted too."""
        self.actor.need(Right.READ)
        found = await self.storage.cron.schedules(with_deleted=True)
        return Schedules(
            tuple(self._view(each) for each in found if self.actor.sees(each.spec.queue))
        )

    async def add_schedule(self, name: str, edit: ScheduleEdit) -> ScheduleView:
        """Add a schedule. Without a queue the one that workers name for the kind.

        What the handler says of the kind counts, where the program has the handler, else what pods
        publish: form of the payload, secrets, encryption, and the options that are left out.

        :param edit: at least ``kind`` and ``expression``
        :raises InvalidInput: a value is wrong. Names the field and the fix
        :raises Conflict: there is such a schedule
        """
        self.actor.act("add_schedule")
        plain = checked_spec(name, edit)
        if await self.storage.cron.get_schedule(name) is not None:
            raise Conflict(f"a schedule is named {name!r}; change it with 'cron set'")
        known = await known_kind(self.storage, self.handlers, plain.kind)
        known.check(plain.payload)
        queue = edit.queue or known.options.queue or await self.client.queue_of(plain.kind)
        self._may_use(queue)
        spec = spec_of(known, name=name, **(edit.given | {"queue": queue}))
        return self._view(
            await self._recorded(
                "add_schedule", name, lambda: put_schedule(self.storage.cron, spec), queue
            )
        )

    async def set_schedule(self, name: str, edit: ScheduleEdit) -> ScheduleView:
        """Change a schedule. Parts left out stay as they are. Later deploys leave all alone.

        Where a secret of the payload is shown as ``***`` and left so, the secret stays.

        :raises InvalidInput: a value is wrong, or none is given. Or payloads of the kind are
            encrypted and the key is not here
        :raises NotFound: no such schedule
        """
        self.actor.act("set_schedule")
        given = edit.given
        if not given:
            raise InvalidInput("schedule", "is given no change", "give one, as --expression @daily")
        stored = await self._schedule(name)
        known = await known_kind(self.storage, self.handlers, given.get("kind", stored.spec.kind))
        spec = edited_spec(known, stored.spec, given, self._spec_marks(stored))
        self._may_use(spec.queue)
        return self._view(
            await self._recorded(
                "set_schedule",
                name,
                lambda: put_schedule(self.storage.cron, spec),
                stored.spec.queue,
                spec.queue,
            )
        )

    async def pause_schedule(self, name: str) -> ScheduleView:
        """Stop a schedule from firing.

        :raises NotFound: no such schedule
        """
        return await self._switched("pause_schedule", name, pause_schedule)

    async def resume_schedule(self, name: str) -> ScheduleView:
        """Let a paused schedule fire again, from the next occurrence on.

        :raises NotFound: no such schedule
        """
        return await self._switched("resume_schedule", name, resume_schedule)

    async def _switched(
        self, action: str, name: str, change: Callable[[CronStore, str], Awaitable[Schedule]]
    ) -> ScheduleView:
        self.actor.act(action)
        queue = (await self._schedule(name)).spec.queue
        changed = await self._recorded(action, name, lambda: change(self.storage.cron, name), queue)
        return self._view(changed)

    async def delete_schedule(self, name: str) -> Deleted:
        """Remove a schedule. A deploy does not bring the schedule back.

        :raises NotFound: no such schedule
        """
        self.actor.act("delete_schedule")
        queue = (await self._schedule(name)).spec.queue
        await self._recorded(
            "delete_schedule", name, lambda: self.storage.cron.delete_schedule(name), queue
        )
        return Deleted(name=name)

    async def schedule_fires(self, name: str, *, count: int = 5) -> Fires:
        """The next occurrences of a schedule, from the one that is stored on.

        :param count: 1 to 100
        :raises NotFound: no such schedule
        :raises InvalidInput: the stored expression is wrong
        """
        self.actor.need(Right.READ)
        if not 1 <= count <= _MOST_FIRES:
            raise InvalidInput("count", f"is {count}", f"give 1 to {_MOST_FIRES}")
        stored = await self._schedule(name)
        cron = parse_cron(stored.spec.expression, stored.spec.timezone)
        found: list[datetime] = []
        at = stored.next_at
        while at is not None and len(found) < count:
            found.append(at)
            at = cron.next_after(at)
        return Fires(name=name, timezone=stored.spec.timezone, fires=tuple(found))

    async def trigger_schedule(self, name: str) -> EnqueueOutcome:
        """Enqueue the job of a schedule now. The next occurrence stays.

        :raises NotFound: no such schedule
        """
        self.actor.act("trigger_schedule")
        queue = (await self._schedule(name)).spec.queue
        return await self._recorded(
            "trigger_schedule", name, lambda: trigger_now(self.storage, name), queue
        )

    async def _schedule(self, name: str) -> Schedule:
        stored = await self.storage.cron.get_schedule(check_name("name", name))
        if stored is None or not self.actor.sees(stored.spec.queue):
            raise NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")
        return stored

    def _spec_marks(self, stored: Schedule) -> Mapping[str, str]:
        """Metadata that says what people must not read of the payload."""
        metadata = json.decode(stored.spec.metadata, type=dict[str, str])
        return self.redaction.marks(stored.spec.payload, metadata)

    def _view(self, stored: Schedule) -> ScheduleView:
        spec = widened(SpecView, stored.spec)
        spec = structs.replace(
            spec,
            payload=readable(spec.payload, self._spec_marks(stored)),
            metadata=self.redaction.document(spec.metadata),
        )
        if not self.actor.access.payloads:
            spec = structs.replace(spec, payload=f'"{HIDDEN}"', metadata="{}")
        standing = _standing(stored)
        return widened(ScheduleView, stored, spec=spec, standing=standing, etag=tag_of(spec))


def _standing(stored: Schedule) -> str:
    if stored.deleted:
        return "deleted by an operator; 'cron add' brings it back"
    if stored.unreadable:
        return f"cannot be read: {stored.unreadable}"
    if stored.error:
        return f"disabled: {stored.error}"
    return "paused" if stored.paused else "on"
