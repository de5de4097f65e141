"""A queue's record: settings as hash fields, and the state in the form of a script's answer."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.model.queues import CooldownPolicy, QueueSettings, QueueState, Retention
from forge_jobs.model.retries import Retry
from forge_jobs.storage.redis.base.job_rows import StoredFields
from forge_jobs.storage.redis.base.scripts import item_of
from forge_jobs.storage.salvage import letters_to, objective_in, rest_of, salvaged_queue

_ZERO = timedelta(0)
_cooldown = msgspec.json.Decoder(CooldownPolicy).decode
_retention = msgspec.json.Decoder(Retention).decode
_retry = msgspec.json.Decoder(Retry | None).decode


class QueueRecord(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``queue_state`` of ``queues.lua``: texts, "" for a value that is not set.

    :param now: the store's time of the reading
    :param is_limited: the queue has limits by key. Only ``queue_states`` tells
    """

    now: int
    max_workers: str
    cooldown: str
    retention: str
    retry: str
    paused: str
    cooldown_until: str
    cooldown_level: str
    set_max_workers: str
    set_cooldown: str
    set_retention: str
    set_retry: str
    dead_letter: str
    set_dead_letter: str
    objective: str
    set_objective: str
    is_limited: bool = False

    def state(self, name: str) -> QueueState:
        """Return the state of the queue of that name.

        A value that cannot be read counts as a queue's default.
        """
        read = StoredFields({field: getattr(self, field) for field in _READ})
        defaults = QueueSettings()
        settings = QueueSettings(
            max_workers=read.read("max_workers", _workers, defaults.max_workers),
            cooldown=read.read("cooldown", _cooldown, defaults.cooldown),
            retention=read.read("retention", _retention, defaults.retention),
            retry=read.read("retry", _retry, None),
            dead_letter=read.read("dead_letter", letters_to, ""),
            objective=read.read("objective", objective_in, ""),
        )
        until = read.number("cooldown_until") if self.cooldown_until else None
        remaining, ended_for = (_ZERO, None) if until is None else rest_of(until, self.now)
        found = QueueState(
            name=name,
            settings=settings,
            overridden=frozenset(
                setting for setting in _SETTINGS if getattr(self, f"set_{setting}")
            ),
            paused=bool(self.paused),
            cooldown_remaining=remaining,
            cooldown_level=read.count("cooldown_level"),
            cooldown_ended_for=ended_for,
            paused_since=read.instant_if_set("paused"),
        )
        return salvaged_queue(found, read.problems)


_READ = (
    "max_workers",
    "cooldown",
    "retention",
    "retry",
    "paused",
    "cooldown_until",
    "cooldown_level",
    "dead_letter",
    "objective",
)
_SETTINGS = QueueSettings.__struct_fields__


def setting_fields(settings: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Return for each setting the name, and the hash fields and values in turn. The
    field that tells whether the setting differs comes first.

    Durations that scripts work with stand beside the JSON, in microseconds.
    """
    return [
        item_of("declare_queue", "setting", name=name, fields=_fields(name, value))
        for name, value in settings.items()
    ]


def _fields(name: str, value: Any) -> list[str]:
    if isinstance(value, int | str):
        return [name, str(value)]
    fields = [name, msgspec.json.encode(value).decode()]
    if isinstance(value, CooldownPolicy):
        fields += ["cooldown_quiet", _microseconds(value.quiet)]
    if isinstance(value, Retention):
        for status in ("done", "dead", "cancelled"):
            fields += [f"keep_{status}", _microseconds(getattr(value, status))]
    return fields


def _microseconds(duration: timedelta) -> str:
    # More than a lifetime. A time plus this is a number that Lua holds exactly.
    return str(min(duration_us(duration), 2**52))


def _workers(stored: str) -> int:
    return QueueSettings(max_workers=int(stored)).max_workers


DEFAULT_FIELDS = [
    part
    for name, value in msgspec.structs.asdict(QueueSettings()).items()
    for part in _fields(name, value)
]
"""The argument of ``ensure_queue`` of ``queues.lua`` for a queue that no program declared."""
