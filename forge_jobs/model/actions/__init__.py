"""Records of what operators did: an action, how far it has come, and one step of it."""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from ulid import ULID

from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobFilter, Refusal

RECORDS_KEPT = timedelta(days=400)
"""How long the record of an action stays."""

JOBS_KEPT = timedelta(days=7)
"""How long it is known which jobs an action has changed."""

MAX_REASON = 1_000

_NO_TIME = bytes(6)
WITH_TIME = "0000000001"
"""Ids of actions that lists have begin so, or higher. Lower ids have no time."""


class ActionState(StrEnum):
    """The state of an action, or of its part in one queue."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"


class Action(Struct, frozen=True, kw_only=True):
    """An action of an operator. Stays as it was stored, except that one on one thing is settled.

    :param id: a ULID
    :param at: the store's time when the action was stored, filled in by the store
    :param actor: the name of the person or program
    :param surface: where the actor came from
    :param verb: the name of the operation
    :param which: the jobs of an action on many. None for other actions
    :param queues: the queues with such jobs, each a part of the action
    :param matched: how many jobs the preview has counted
    :param target: the name of the queue, schedule or limit of an action on one
    :param concerns: the queues of that one thing, before and after. Who may not see one of them
        does not see the record. None for things that belong to no queue
    :param before: JSON text of the value before. "" for none
    :param after: JSON text of the value after. "" for none. Of an edit that still runs the value
        that was asked for
    :param undoes: the id of the action that this one takes back
    :param settled: of an action on one: running from before the change until the change is known
        to be made, or aborted when nothing was changed or that is not known
    """

    id: str
    at: datetime | None = None
    actor: str
    surface: str
    verb: str
    which: JobFilter | None = None
    queues: tuple[str, ...] = ()
    matched: int = 0
    target: str = ""
    concerns: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    reason: str = ""
    undoes: str = ""
    settled: ActionState = ActionState.DONE


class ActionPart(Struct, frozen=True, kw_only=True):
    """How far an action has come in one queue.

    :param cursor: the last job that was visited. "" before the first
    :param changed: how many jobs were changed
    :param requested: how many running jobs' owners were asked to stop
    :param refused: how many jobs were left as they were, by reason
    """

    queue: str
    state: ActionState = ActionState.RUNNING
    cursor: str = ""
    changed: int = 0
    requested: int = 0
    refused: Mapping[Refusal, int] = {}


class ActionRecord(Struct, frozen=True, kw_only=True):
    """An action, and how far it has come.

    :param silent: queues whose part of the store does not answer, so that their parts are missing
    """

    action: Action
    parts: tuple[ActionPart, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def state(self) -> ActionState:
        """Running while a part is or is not known, then aborted if any part was."""
        if self.action.settled is not ActionState.DONE:
            return self.action.settled
        states = {part.state for part in self.parts}
        if self.silent or ActionState.RUNNING in states:
            return ActionState.RUNNING
        return ActionState.ABORTED if ActionState.ABORTED in states else ActionState.DONE


class ActionStep(Struct, frozen=True, kw_only=True):
    """A step of an action on many: the jobs of one queue behind the cursor.

    :param cursor: the cursor of the part, as it was read
    """

    action_id: str
    queue: str
    cursor: str = ""


def mark_id(actor: str, key: str) -> str:
    """Return the id of the mark that an actor has used a key: always the same, and without a time.

    A mark is an action too, whose ``target`` is the id of the action that the key stands for.
    """
    digest = hashlib.sha256(f"{actor}\0{key}".encode("utf-8", "replace")).digest()
    return str(ULID(_NO_TIME + digest[:10]))


def check_action_id(value: object) -> str:
    """Return the id of an action.

    :raises InvalidInput: the value is no ULID
    """
    if isinstance(value, str):
        try:
            return str(ULID.from_str(value))
        except ValueError:
            pass
    raise InvalidInput("action_id", f"is {value!r:.40}", "give the ULID of an action")


def check_step(which: JobFilter, cursor: str | None, step: ActionStep) -> JobFilter:
    """Return the filter of a step.

    :raises InvalidInput: the filter does not mean the queue of the step, or a cursor is given too
    """
    if which.queues != (step.queue,):
        raise InvalidInput("which", "means other queues than the step", "name the step's queue")
    if cursor is not None:
        raise InvalidInput("cursor", "is given beside step", "leave it out: the step has one")
    return which
