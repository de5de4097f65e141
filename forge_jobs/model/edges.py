"""Edges: the state of each parent, as a job that comes after the parent knows it."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ACTIVE, JobStatus

MOST_KIN = 1_000
"""So many relatives are shown in each direction at most."""

MOST_OF_ONE = 10_000
"""So many of a single job."""

STEP, WORKFLOW = "forge_jobs.step", "forge_jobs.workflow"
"""The keys of a job's metadata that name the step and the id of the workflow that has the job."""

GROUP_KIND, WORKFLOW_KIND = "forge.group", "forge.workflow"
"""The kinds of the jobs that end when a group or a workflow has settled. See ``group_handlers``."""

MOST_ASKED = 100
"""Of so many jobs one call tells the relatives."""


class EdgeState(StrEnum):
    """The state of one parent for its child. The stored text is the value."""

    OPEN = "open"
    """The parent has to end first."""
    HELD = "held"
    """The parent ended without success. A blocked child waits for an operator, or for a success of
    the parent after a requeue."""
    SETTLED = "settled"
    """The child need not wait for the parent."""
    DEAD = "dead"
    """Not waited for: the parent ended so, and the edge says ``note``. A success after a requeue of
    the parent settles the edge."""
    CANCELLED = "cancelled"
    """Likewise."""

    @property
    def waits(self) -> bool:
        """True while the child has to wait for the parent."""
        return self in WAITING

    @property
    def hears(self) -> bool:
        """True while a later end of the parent, after a requeue, changes the edge."""
        return self is not EdgeState.SETTLED


WAITING = (EdgeState.OPEN, EdgeState.HELD)
"""The states in which the child waits."""


LINE_RULES = ("wait", "skip", "stop")
"""Words of a sequence for a parent without success."""

OF_SEQUENCES = (*LINE_RULES, "cancel_in_line", "continue_in_line", "hold_in_line", "note_in_line")
"""Words of edges of sequences. A child whose parent ended without success while that one waited
itself comes to wait for the parents of the parent. The longer words are of a parent that the
request named too, and mean what the request said."""

PASSING = ("continue", "continue_in_line", "skip")
"""By these the child goes on after any end of the parent."""

HOLDING = ("hold", "hold_in_line", "wait", "stop")
"""By these the child waits for an operator when the parent is gone."""

NOTING = ("note", "note_in_line")
"""By these the child goes on, and the edge keeps how the parent ended."""


def named_in_line(named: str) -> str:
    """Return the word of an edge to a parent that the request names, and that is last in line."""
    return f"{named}_in_line"


class Tally(Struct, frozen=True):
    """How many parents of one job are in each state. See ``KinStore.tallies``.

    :param settled: done, or no longer waited for
    :param dead: of edges that say ``note``
    :param cancelled: likewise
    """

    open: int = 0
    held: int = 0
    settled: int = 0
    dead: int = 0
    cancelled: int = 0


class Relative(Struct, frozen=True, kw_only=True):
    """A parent or a child of a job, and the edge between them.

    :param queue: "" when the job is no longer stored, as ``kind``
    :param status: None when the job is no longer stored
    :param on_failure: what a failure of the parent means for the child: ``cancel``, ``continue``,
        ``hold`` or ``note``, and in a sequence ``wait``, ``skip`` or ``stop``. See OF_SEQUENCES for
        a named parent in a sequence
    :param edge: the state of the parent for the child
    """

    id: JobId
    queue: str
    kind: str
    status: JobStatus | None
    on_failure: str
    edge: EdgeState


class Kin(Struct, frozen=True, kw_only=True):
    """The parents and the children of a job, each in id order.

    :param parents: the jobs that this one was enqueued after, also those that were removed
    :param children: the jobs that were enqueued after this one, and are stored
    :param more_parents: there are more than were asked for
    :param more_children: there are more than were asked for
    """

    parents: tuple[Relative, ...] = ()
    children: tuple[Relative, ...] = ()
    more_parents: bool = False
    more_children: bool = False


def check_kin(ids: Sequence[JobId], limit: int) -> None:
    """Check how much a call asks for.

    :raises InvalidInput: too many jobs, or a limit out of bounds
    """
    if len(ids) > MOST_ASKED:
        raise InvalidInput("ids", f"are {len(ids)}", f"give at most {MOST_ASKED} in a call")
    most = MOST_OF_ONE if len(ids) <= 1 else MOST_KIN
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput("limit", f"is {limit!r:.40}", f"give 1 to {most}")


def edge_of_ended(on_failure: str, status: JobStatus) -> EdgeState:
    """The state of an edge once its parent has ended with that status.

    ``wait`` passes a cancelled parent. Held is also what a word that this version does not know
    says.
    """
    is_passed = on_failure in PASSING or (on_failure == "wait" and status is JobStatus.CANCELLED)
    if status is JobStatus.DONE or is_passed:
        return EdgeState.SETTLED
    return EdgeState(status.value) if on_failure in NOTING else EdgeState.HELD


def edge_of_requeued(
    on_failure: str, state: EdgeState, parent: JobStatus | None
) -> EdgeState | None:
    """The state of an edge when its child is requeued.

    The child waits for a parent that has yet to end. A settled edge stays settled unless its
    parent runs again. Of a sequence it stays as it is then too, also with a note of how the parent
    ended: the parent may come behind the child, and the two would wait for each other.

    :param parent: the parent's status, None when the parent is gone
    :return: None when the child must not run: the parent is gone without success, and the edge
        says ``cancel``, or what this version does not know
    """
    is_passed_in_line = on_failure in OF_SEQUENCES and not state.waits
    if is_passed_in_line and (state is EdgeState.SETTLED or parent in ACTIVE):
        return state
    if parent in ACTIVE:
        return EdgeState.OPEN
    if on_failure in NOTING and parent is not JobStatus.DONE:
        if parent is None:
            return EdgeState.CANCELLED if state.waits else state
        return EdgeState(parent.value)
    is_passed = on_failure in PASSING or (on_failure == "wait" and parent is JobStatus.CANCELLED)
    if JobStatus.DONE is parent or state is EdgeState.SETTLED or is_passed:
        return EdgeState.SETTLED
    if parent is None and on_failure not in HOLDING:
        return None
    return EdgeState.HELD
