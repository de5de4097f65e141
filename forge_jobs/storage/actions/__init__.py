"""The parts that all stores have in common about operators' actions."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from forge_jobs.clock import duration_us
from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.model.actions import (
    JOBS_KEPT,
    MAX_REASON,
    RECORDS_KEPT,
    Action,
    ActionPart,
    ActionState,
    ActionStep,
    check_action_id,
)
from forge_jobs.model.filters import Refusal
from forge_jobs.storage.salvage import UNREADABLE, Fields, tally

RECORDS_KEPT_US = duration_us(RECORDS_KEPT)
JOBS_KEPT_US = duration_us(JOBS_KEPT)

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
_STATES = {each.value: each for each in ActionState}
UNREADABLE_VERB = "unreadable"
_decode_action = msgspec.json.Decoder(Action).decode


def moved(step: ActionStep) -> Conflict:
    """The refusal of a step that is not the next one."""
    return Conflict(
        f"the action {step.action_id} has gone on in {step.queue!r}, or was aborted; read how far "
        "the action has come, and go on from there"
    )


def added(stored: str, refused: Iterable[Refusal]) -> dict[str, int]:
    """The stored numbers of refusals, and further ones."""
    counts = counts_of(stored)
    for reason in refused:
        counts[reason.value] = counts.get(reason.value, 0) + 1
    return counts


def part_of(
    queue: str,
    *,
    state: str,
    cursor: str,
    changed: object,
    requested: object,
    refused: Mapping[str, int],
) -> ActionPart:
    """Return a stored part. One whose state cannot be read goes on no more.

    Reasons of refusals of later releases are left out.
    """
    known = {each.value for each in Refusal}
    return ActionPart(
        queue=queue,
        state=_STATES.get(state, ActionState.ABORTED),
        cursor=cursor,
        changed=tally(changed),
        requested=tally(requested),
        refused={Refusal(name): number for name, number in refused.items() if name in known},
    )


def counts_of(stored: str) -> dict[str, int]:
    """The stored numbers of refusals, none where they cannot be read."""
    try:
        return _decode_counts(stored)
    except UNREADABLE:
        return {}


def document_of(action: Action) -> str:
    """The stored text of an action.

    :raises InvalidInput: the action cannot be stored
    """
    check_action_id(action.id)
    if len(action.reason) > MAX_REASON:
        problem = f"has {len(action.reason)} characters"
        raise InvalidInput("reason", problem, f"give at most {MAX_REASON}")
    return msgspec.json.encode(action).decode()


def action_of(action_id: str, document: str | bytes, at: object = None) -> Action:
    """The action of a stored text. One that cannot be read is shown as ``unreadable``, with why.

    :param at: when the action was stored, in microseconds
    """
    read = Fields({"document": document, "at": at})
    blank = Action(id=action_id, actor="", surface="", verb=UNREADABLE_VERB)
    found = read.read("document", _decode_action, blank)
    reason = f"the record cannot be read: {read.problems}" if found is blank else found.reason
    return structs.replace(found, at=read.instant_or_none("at"), reason=reason)
