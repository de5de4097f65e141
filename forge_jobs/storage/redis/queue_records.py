"""A queue's record: its settings as hash fields, and its state as a script answers it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.queues import CooldownPolicy, QueueSettings, QueueState, Retention
from forge_jobs.model.retries import Retry

_cooldown = msgspec.json.Decoder(CooldownPolicy)
_retention = msgspec.json.Decoder(Retention)
_retry = msgspec.json.Decoder(Retry | None)


class QueueRecord(msgspec.Struct, frozen=True, array_like=True):
    """What ``queue_state`` of ``lua/lib/queues.lua`` gives: texts, "" for what is not set.

    :param now: the store's time of the reading
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

    def state(self, name: str) -> QueueState:
        """The state of the queue of that name."""
        until = int(self.cooldown_until) if self.cooldown_until else None
        return QueueState(
            name=name,
            settings=QueueSettings(
                max_workers=int(self.max_workers),
                cooldown=_cooldown.decode(self.cooldown),
                retention=_retention.decode(self.retention),
                retry=_retry.decode(self.retry),
            ),
            overridden=frozenset(
                setting for setting in _SETTINGS if getattr(self, f"set_{setting}")
            ),
            paused=bool(self.paused),
            cooldown_remaining=_span(0 if until is None else until - self.now),
            cooldown_level=int(self.cooldown_level or 0),
            cooldown_ended_for=None if until is None else _span(self.now - until),
            paused_since=from_us(int(self.paused)) if self.paused else None,
        )


_SETTINGS = QueueSettings.__struct_fields__


def setting_fields(settings: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Per setting its name, and the hash fields and values that hold it, in turn; the one that
    tells whether it differs comes first.

    Durations that scripts work with stand beside the JSON, in microseconds.
    """
    return [(name, _fields(name, value)) for name, value in settings.items()]


def _fields(name: str, value: Any) -> list[str]:
    if isinstance(value, int):
        return [name, str(value)]
    fields = [name, msgspec.json.encode(value).decode()]
    if isinstance(value, CooldownPolicy):
        fields += ["cooldown_quiet", _microseconds(value.quiet)]
    if isinstance(value, Retention):
        for status in ("done", "dead", "cancelled"):
            fields += [f"keep_{status}", _microseconds(getattr(value, status))]
    return fields


def _microseconds(duration: timedelta) -> str:
    # A time plus this is a number that Lua holds exactly; it is more than a lifetime.
    return str(min(duration_us(duration), 2**52))


def _span(microseconds: int) -> timedelta:
    return timedelta(microseconds=max(0, microseconds))


DEFAULT_FIELDS = [
    part for _, fields in setting_fields(msgspec.structs.asdict(QueueSettings())) for part in fields
]
"""What ``ensure_queue`` of ``lua/lib/queues.lua`` takes: a queue that nobody declared."""
