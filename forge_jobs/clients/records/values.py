"""Values that actions change, as texts: read for the record, written back by an undo."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from forge_jobs.clients.schedules import pause_schedule, put_schedule, resume_schedule
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.pod_requests import PodVerb
from forge_jobs.model.queues import QueueChange, QueueSettings, RateLimit
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.storage.protocols import Storage


class Value(ABC):
    """A value of one queue, schedule, limit or pod."""

    @abstractmethod
    async def read(self, storage: Storage, target: str) -> str:
        """Return the JSON text of the value, "" where there is none."""

    @abstractmethod
    async def write(self, storage: Storage, target: str, text: str) -> None:
        """Write a text that :meth:`read` has returned."""

    def is_same(self, now: str, recorded: str) -> bool:
        """Return whether a recorded text says what is there now."""
        return now == recorded


_ALL = frozenset(QueueSettings.__struct_fields__)


class _Recorded(QueueSettings, frozen=True, kw_only=True):
    """The settings of a queue, and which of these an operator has set. Records of earlier releases
    do not say so: all, then."""

    overridden: frozenset[str] = _ALL


class _Settings(Value):
    async def read(self, storage: Storage, target: str) -> str:
        states = {state.name: state for state in await storage.config.queues()}
        if target not in states:
            return ""
        state = states[target]
        recorded = msgspec.structs.asdict(state.settings)
        return _text(recorded | {"overridden": sorted(state.overridden)})

    async def write(self, storage: Storage, target: str, text: str) -> None:
        recorded = msgspec.json.decode(text or "{}", type=_Recorded)
        values = {name: getattr(recorded, name) for name in recorded.overridden & _ALL}
        change = QueueChange(**values, back=_ALL - recorded.overridden)
        await storage.config.set_queue(target, change if text else QueueChange(back=_ALL))

    def is_same(self, now: str, recorded: str) -> bool:
        if now == recorded or not now or not recorded:
            return now == recorded
        there, then = (msgspec.json.decode(each, type=_Recorded) for each in (now, recorded))
        if '"overridden"' not in recorded:
            there = msgspec.structs.replace(there, overridden=_ALL)
        return there == then


class _QueuePause(Value):
    async def read(self, storage: Storage, target: str) -> str:
        states = {state.name: state for state in await storage.config.queues()}
        return _text(states[target].paused) if target in states else ""

    async def write(self, storage: Storage, target: str, text: str) -> None:
        await storage.config.set_paused(target, msgspec.json.decode(text, type=bool))


class _Spec(Value):
    async def read(self, storage: Storage, target: str) -> str:
        stored = await storage.cron.get_schedule(target)
        return "" if stored is None else _text(stored.spec)

    async def write(self, storage: Storage, target: str, text: str) -> None:
        if text:
            await put_schedule(storage.cron, msgspec.json.decode(text, type=ScheduleSpec))
        else:
            await storage.cron.delete_schedule(target)


class _SchedulePause(Value):
    async def read(self, storage: Storage, target: str) -> str:
        stored = await storage.cron.get_schedule(target)
        return "" if stored is None else _text(stored.paused)

    async def write(self, storage: Storage, target: str, text: str) -> None:
        change = pause_schedule if msgspec.json.decode(text, type=bool) else resume_schedule
        await change(storage.cron, target)


class _Limit(Value):
    async def read(self, storage: Storage, target: str) -> str:
        found = {state.scope: state.limit for state in await storage.config.rate_limits()}
        return _text(found[target]) if target in found else ""

    async def write(self, storage: Storage, target: str, text: str) -> None:
        if text:
            await storage.config.set_rate_limit(target, msgspec.json.decode(text, type=RateLimit))
        else:
            await storage.config.delete_rate_limit(target)


def target_of_limit(queue: str, name: str) -> str:
    """Return the target of a limit of concurrency in records. A queue's name has no space."""
    return f"{queue} {name}"


class _Concurrency(Value):
    async def read(self, storage: Storage, target: str) -> str:
        for state in await storage.config.limits():
            if target_of_limit(state.queue, state.name) == target:
                return _text((state.at_most, state.share))
        return ""

    async def write(self, storage: Storage, target: str, text: str) -> None:
        queue, _, name = target.partition(" ")
        if text:
            numbers = msgspec.json.decode(text, type=tuple[int, int | None])
            await storage.config.set_limit(queue, name, *numbers)
        else:
            await storage.config.delete_limit(queue, name)


class _StoredStrike(Struct, frozen=True):
    rule: StrikeRule
    by: str


class _Strike(Value):
    async def read(self, storage: Storage, target: str) -> str:
        found = {each.name: each for each in await storage.config.strikes()}
        if target not in found or found[target].unreadable:
            return ""
        return _text(_StoredStrike(found[target].rule, found[target].by))

    async def write(self, storage: Storage, target: str, text: str) -> None:
        if text:
            kept = msgspec.json.decode(text, type=_StoredStrike)
            await storage.config.put_strike(target, kept.rule, kept.by)
        else:
            await storage.config.lift_strike(target)


class _Quiet(Value):
    async def read(self, storage: Storage, target: str) -> str:
        states = {str(state.pod.host_id): state for state in await storage.procs.pods()}
        return _text(states[target].quiet) if target in states else ""

    async def write(self, storage: Storage, target: str, text: str) -> None:
        verb = PodVerb.QUIET if text and msgspec.json.decode(text, type=bool) else PodVerb.RESUME
        await storage.procs.ask_pod(HostId(target), verb, request_id=new_job_id())


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


_VALUES: Mapping[str, Value] = {
    "set_queue": _Settings(),
    "pause_queue": _QueuePause(),
    "resume_queue": _QueuePause(),
    "add_schedule": _Spec(),
    "set_schedule": _Spec(),
    "delete_schedule": _Spec(),
    "pause_schedule": _SchedulePause(),
    "resume_schedule": _SchedulePause(),
    "quiet_pod": _Quiet(),
    "resume_pod": _Quiet(),
    "add_strike": _Strike(),
    "lift_strike": _Strike(),
    "set_limit": _Limit(),
    "delete_limit": _Limit(),
    "set_concurrency": _Concurrency(),
    "delete_concurrency": _Concurrency(),
}


def value_of(verb: str) -> Value | None:
    """Return the value that an operation changes, None where an undo is not possible."""
    return _VALUES.get(verb)
