"""Reads and changes of queues."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, structs

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.processes import Allocation
from forge_jobs.model.queues import (
    ENDED_COUNTED,
    CooldownPolicy,
    QueueChange,
    QueueCounts,
    QueueSettings,
    QueueState,
    Retention,
)
from forge_jobs.model.retries import Retry
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.documents import Deleted, widened
from forge_jobs.operating.metrics.latencies import LAST_HOUR, QueueStats, read_stats
from forge_jobs.operating.settings.documents import Queues, QueueView, tag_of
from forge_jobs.operating.settings.lines import SettingLines, lines_of
from forge_jobs.operating.settings.serving import NO_COUNTS, service_by
from forge_jobs.storage.protocols import Storage

_ACTIONS = 1_000
"""So many of the newest actions are searched for who has set what."""


class CooldownEdit(Struct, frozen=True, kw_only=True):
    """Parts of a ``CooldownPolicy``. What is left out stays."""

    mode: Literal["flat", "exponential"] | UnsetType = UNSET
    base: timedelta | UnsetType = UNSET
    cap: timedelta | UnsetType = UNSET
    quiet: timedelta | UnsetType = UNSET


class RetentionEdit(Struct, frozen=True, kw_only=True):
    """Parts of a ``Retention``. What is left out stays."""

    done: timedelta | UnsetType = UNSET
    dead: timedelta | UnsetType = UNSET
    cancelled: timedelta | UnsetType = UNSET
    max_done: int | UnsetType | None = UNSET
    max_dead: int | UnsetType | None = UNSET
    max_cancelled: int | UnsetType | None = UNSET


class QueueEdit(Struct, frozen=True, kw_only=True):
    """Settings of a queue, as an operator edits them. What is None stays.

    :param dead_letter: "" for no letters from now on
    :param objective: as ``95% within 30s``. "" for none from now on
    :param from_code: names of settings that are the code's again, as ``("max_workers",)``
    """

    max_workers: int | None = None
    cooldown: CooldownEdit | None = None
    retention: RetentionEdit | None = None
    retry: Retry | None = None
    dead_letter: str | None = None
    objective: str | None = None
    from_code: tuple[str, ...] = ()


async def read_queues(storage: Storage, states: Sequence[QueueState]) -> tuple[QueueView, ...]:
    """Read the jobs, the slots and the last hour of some queues: four calls, however many."""
    names = [state.name for state in states]
    stats = await read_stats(storage, names, LAST_HOUR)
    counts = await storage.jobs.counts(names, ended_at_most=ENDED_COUNTED)
    slots = {each.queue: each for each in await storage.procs.allocations()}
    return tuple(
        _view(state, counts.get(state.name, NO_COUNTS), slots.get(state.name), each)
        for state, each in zip(states, stats, strict=True)
    )


class QueueCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_queues(self) -> Queues:
        """All queues with their jobs, slots, pauses, and how long jobs took in the last hour."""
        self.actor.need(Right.READ)
        states = [each for each in await self.storage.config.queues() if self.actor.sees(each.name)]
        return Queues(await read_queues(self.storage, states))

    async def queue_settings(self, name: str) -> SettingLines:
        """Settings of a queue: each value in force, that of code, and who has set the value.

        :raises NotFound: no such queue
        """
        self.actor.need(Right.READ)
        check_name("queue", name)
        self._may_see(name)
        states = {state.name: state for state in await self.storage.config.queues()}
        if name not in states:
            raise NotFound(f"there is no queue {name!r}")
        of_code = await self.storage.config.settings_of_code()
        actions = await self.storage.jobs.actions(limit=_ACTIONS)
        return lines_of(states[name], of_code.get(name), [each.action for each in actions])

    async def set_queue(self, name: str, edit: QueueEdit) -> QueueState:
        """Change settings of a queue. They stay over later deploys. Creates the queue.

        What ``edit.from_code`` names is as code declares again, and follows later deploys.

        :raises InvalidInput: a value is wrong, or none is given
        """
        self.actor.act("set_queue")
        check_queue("queue", name)
        self._may_use(name)
        if edit == QueueEdit():
            raise InvalidInput("queue", "is given no setting", "give one, as --max-workers 4")
        states = {state.name: state for state in await self.storage.config.queues()}
        settings = states[name].settings if name in states else QueueSettings()
        change = _change(settings, edit)
        return await self._recorded(
            "set_queue", name, lambda: self.storage.config.set_queue(name, change), name
        )

    async def pause_queue(self, name: str) -> QueueState:
        """Stop claiming from a queue. Running jobs finish.

        :raises NotFound: no such queue
        """
        await self._known_queue("pause_queue", name)
        return await self._recorded(
            "pause_queue", name, lambda: self.storage.config.set_paused(name, True), name
        )

    async def resume_queue(self, name: str) -> QueueState:
        """Claim from a paused queue again. Ends a cool-down too.

        :raises NotFound: no such queue
        """
        await self._known_queue("resume_queue", name)
        config = self.storage.config
        await self._recorded("resume_queue", name, lambda: config.set_paused(name, False), name)
        return await config.clear_cooldown(name)

    async def end_cooldown(self, name: str) -> QueueState:
        """End the cool-down of a queue and forget the throttles before. A pause stays.

        :raises NotFound: no such queue
        """
        await self._known_queue("end_cooldown", name)
        return await self._recorded(
            "end_cooldown", name, lambda: self.storage.config.clear_cooldown(name), name
        )

    async def delete_queue(self, name: str, *, with_jobs: bool = False) -> Deleted:
        """Delete a queue that has no jobs and that no live pod serves.

        :param with_jobs: delete the jobs first. Running ones are refused
        :raises NotFound: no such queue
        :raises Conflict: the queue has jobs, or a live pod serves the queue
        """
        await self._known_queue("delete_queue", name)
        gone = 0
        if with_jobs:
            which = JobFilter(queues=(name,))
            action = self._action("delete_jobs", which=which, queues=(name,))
            record = await self._drive((await self.storage.jobs.put_action(action)).action)
            gone = sum(part.changed for part in record.parts)
        await self._recorded(
            "delete_queue", name, lambda: self.storage.config.delete_queue(name), name
        )
        schedules = await self.storage.cron.schedules()
        left = tuple(each.spec.name for each in schedules if each.spec.queue == name)
        return Deleted(name=name, jobs=gone, schedules=left)

    async def check_queues(self, names: tuple[str, ...]) -> None:
        """Refuse names of queues that do not exist, before any is touched.

        :raises NotFound: no such queue
        """
        self.actor.need(Right.READ)
        known = {state.name for state in await self.storage.config.queues()}
        for name in names:
            check_name("queue", name)
            if name not in known or not self.actor.sees(name):
                raise NotFound(f"there is no queue {name!r}; forge-jobs queues list names all")

    async def _known_queue(self, action: str, name: str) -> None:
        """Refuse an actor who may not change queues, and a queue that does not exist."""
        self.actor.act(action)
        check_name("queue", name)
        self._may_see(name)
        if name not in {state.name for state in await self.storage.config.queues()}:
            raise NotFound(f"there is no queue {name!r}; forge-jobs queues list names all")


def _view(
    state: QueueState, counts: QueueCounts, allocation: Allocation | None, stats: QueueStats
) -> QueueView:
    pods = allocation.pods if allocation else {}
    serving = service_by(state, counts, [slots.grant for slots in pods.values()])
    return widened(
        QueueView,
        state,
        counts=counts,
        granted=serving.granted,
        pods=serving.pods,
        unserved=serving.unserved,
        standing=serving.standing,
        etag=tag_of(state.settings),
        run=stats.run,
        total=stats.total,
    )


def _change(settings: QueueSettings, edit: QueueEdit) -> QueueChange:
    cooldown, retention = _given(edit.cooldown), _given(edit.retention)
    return QueueChange(
        max_workers=edit.max_workers,
        cooldown=_changed_cooldown(settings.cooldown, cooldown) if cooldown else None,
        retention=_changed_retention(settings.retention, retention) if retention else None,
        retry=edit.retry,
        dead_letter=edit.dead_letter,
        objective=edit.objective,
        back=frozenset(edit.from_code),
    )


def _changed_cooldown(policy: CooldownPolicy, given: dict[str, object]) -> CooldownPolicy:
    return structs.replace(policy, **given)


def _changed_retention(retention: Retention, given: dict[str, object]) -> Retention:
    return structs.replace(retention, **given)


def _given(edit: Struct | None) -> dict[str, object]:
    if edit is None:
        return {}
    return {name: value for name, value in structs.asdict(edit).items() if value is not UNSET}
