"""The parts that all stores have in common about operators' actions."""

from collections.abc import Iterable, Mapping

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.model.actions import (
    JOBS_KEPT,
    MAX_REASON,
    RECORDS_KEPT,
    Action,
    ActionStep,
    check_action_id,
)
from forge_jobs.model.filters import Refusal

RECORDS_KEPT_US = duration_us(RECORDS_KEPT)
JOBS_KEPT_US = duration_us(JOBS_KEPT)

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
_decode_action = msgspec.json.Decoder(Action).decode


def moved(step: ActionStep) -> Conflict:
    """The refusal of a step that is not the next one."""
    return Conflict(
        f"the action {step.action_id} has gone on in {step.queue!r}, or was aborted; read how far "
        "the action has come, and go on from there"
    )


def added(stored: str, refused: Iterable[Refusal]) -> dict[str, int]:
    """The stored numbers of refusals, and further ones."""
    counts = _decode_counts(stored)
    for reason in refused:
        counts[reason.value] = counts.get(reason.value, 0) + 1
    return counts


def refusals(counts: Mapping[str, int]) -> dict[Refusal, int]:
    """Numbers of refusals by reason. Reasons of later releases are left out."""
    known = {each.value for each in Refusal}
    return {Refusal(name): number for name, number in counts.items() if name in known}


def document_of(action: Action) -> str:
    """The stored text of an action.

    :raises InvalidInput: the action cannot be stored
    """
    check_action_id(action.id)
    if len(action.reason) > MAX_REASON:
        problem = f"has {len(action.reason)} characters"
        raise InvalidInput("reason", problem, f"give at most {MAX_REASON}")
    return msgspec.json.encode(action).decode()


def action_of(document: str | bytes) -> Action:
    """The action of a stored text."""
    return _decode_action(document)
