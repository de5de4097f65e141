"""The settings of a queue, each with where the value comes from."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.model.actions import Action
from forge_jobs.model.queues import QueueSettings, QueueState


class SettingLine(Struct, frozen=True, kw_only=True):
    """A setting of a queue.

    :param value: in force
    :param of_code: as code has declared last, the default where no code did
    :param is_overridden: an operator has set the value, and later deploys leave that alone
    :param actor: who has set the value, "" when code did, or the record is no longer there
    """

    name: str
    value: Any
    of_code: Any
    is_overridden: bool
    actor: str = ""
    at: datetime | None = None
    action_id: str = ""


class SettingLines(Struct, frozen=True, kw_only=True):
    """The settings of a queue.

    :param is_declared: code has declared the queue since this release came
    """

    queue: str
    is_declared: bool
    settings: tuple[SettingLine, ...]


def lines_of(
    state: QueueState, declared: QueueSettings | None, actions: Iterable[Action]
) -> SettingLines:
    """Return the lines of a queue.

    :param actions: newest first
    """
    of_code = declared or QueueSettings()
    setters = _setters(state.name, actions)
    found = []
    for name in QueueSettings.__struct_fields__:
        is_overridden = name in state.overridden
        setter = setters.get(name) if is_overridden else None
        found.append(
            SettingLine(
                name=name,
                value=getattr(state.settings, name),
                of_code=getattr(of_code, name),
                is_overridden=is_overridden,
                actor=setter.actor if setter else "",
                at=setter.at if setter else None,
                action_id=setter.id if setter else "",
            )
        )
    return SettingLines(queue=state.name, is_declared=declared is not None, settings=tuple(found))


def _setters(queue: str, actions: Iterable[Action]) -> dict[str, Action]:
    """Return the newest change of each setting."""
    found: dict[str, Action] = {}
    for each in actions:
        if each.verb == "set_queue" and each.target == queue and each.before != each.after:
            before, after = _values(each.before), _values(each.after)
            for name in after:
                if after[name] != before.get(name):
                    found.setdefault(name, each)
    return found


def _values(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
