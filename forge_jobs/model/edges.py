"""Edges: the state of each parent, as a job that comes after the parent knows it."""

from enum import StrEnum

from forge_jobs.model.jobs import ACTIVE, JobStatus


class EdgeState(StrEnum):
    """The state of one parent for its child. The stored text is the value."""

    OPEN = "open"
    """The parent has to end first."""
    HELD = "held"
    """The parent ended without success. A blocked child waits for an operator, or for a success of
    the parent after a requeue."""
    SETTLED = "settled"
    """The child need not wait for the parent."""


def edge_of_requeued(
    on_failure: str, state: EdgeState, parent: JobStatus | None
) -> EdgeState | None:
    """The state of an edge when its child is requeued.

    The child waits for a parent that has yet to end. A settled edge stays settled unless its
    parent runs again.

    :param parent: the parent's status, None when the parent is gone
    :return: None when the child must not run: the parent is gone without success, and the edge
        says ``cancel``, or what this version does not know
    """
    if parent in ACTIVE:
        return EdgeState.OPEN
    if JobStatus.DONE is parent or state is EdgeState.SETTLED or on_failure == "continue":
        return EdgeState.SETTLED
    if parent is None and on_failure != "hold":
        return None
    return EdgeState.HELD
