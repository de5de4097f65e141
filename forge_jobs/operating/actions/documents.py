"""Documents of actions."""

from typing import ClassVar

from msgspec import Struct

from forge_jobs.model.actions import Action, ActionPart, ActionState
from forge_jobs.model.ids import JobId


class ActionView(Action, frozen=True, kw_only=True):
    """An action, how far it has come, and the sums over its parts."""

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("before", "after")

    state: ActionState
    changed: int
    requested: int
    refused: int
    parts: tuple[ActionPart, ...]
    silent: tuple[str, ...]


class Actions(Struct, frozen=True, kw_only=True):
    """A page of actions, the newest first.

    :param cursor: pass it to get the next page. None on the last page
    """

    actions: tuple[ActionView, ...]
    cursor: str | None


class ActionJobs(Struct, frozen=True, kw_only=True):
    """A page of the jobs that an action has changed or asked for, by id."""

    action_id: str
    job_ids: tuple[JobId, ...]
    cursor: str | None
