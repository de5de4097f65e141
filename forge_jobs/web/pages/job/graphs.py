"""The graph of a workflow: each step right of those that the step comes after."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import structs

from forge_jobs.clients.flows.workflows import StepState
from forge_jobs.model.edges import EdgeState
from forge_jobs.web.pages.job.drawing import BOX, HEIGHT, STEP, Drawing, Node, curve, short
from forge_jobs.web.pages.words import STATUS_CLASS, STATUS_WORD

MOST_DRAWN = 60
"""Steps. A larger graph says less than the table does."""

_COLUMN = BOX + 60


def graph_of(steps: Sequence[StepState]) -> Drawing | None:
    """Return the graph of a workflow, None with one step, and with more than are drawn.

    :param steps: each after the steps that it comes after
    """
    if not 1 < len(steps) <= MOST_DRAWN:
        return None
    columns = _columns(steps)
    height = max(len(column) for column in columns) * STEP - (STEP - HEIGHT)
    nodes: dict[str, Node] = {}
    for place, column in enumerate(columns):
        top = (height - (len(column) * STEP - (STEP - HEIGHT))) // 2
        # Beside the steps before: few lines cross.
        column.sort(key=lambda step: _middle_of_parents(step, nodes))
        for row, step in enumerate(column):
            node = structs.replace(_node(step), x=place * _COLUMN, y=top + row * STEP)
            nodes[step.name] = node
    by_name = {step.name: step for step in steps}
    lines = [
        curve(
            nodes[before].x + BOX,
            nodes[before].y + HEIGHT // 2,
            nodes[step.name].x,
            nodes[step.name].y + HEIGHT // 2,
            _mark_of_edge(by_name[before], step),
        )
        for step in steps
        for before in step.after
        if before in nodes
    ]
    return Drawing(
        nodes=tuple(nodes[step.name] for step in steps),
        lines=tuple(lines),
        width=len(columns) * _COLUMN - (_COLUMN - BOX),
        height=height,
        label=f"{len(steps)} steps with {len(lines)} edges, the first ones at the left",
    )


def _columns(steps: Sequence[StepState]) -> list[list[StepState]]:
    """Return the steps by the length of the longest way that leads to them."""
    column: dict[str, int] = {}
    found: defaultdict[int, list[StepState]] = defaultdict(list)
    for step in steps:
        place = max((column[before] + 1 for before in step.after if before in column), default=0)
        column[step.name] = place
        found[place].append(step)
    return [found[place] for place in sorted(found)]


def _middle_of_parents(step: StepState, nodes: Mapping[str, Node]) -> float:
    ys = [nodes[before].y for before in step.after if before in nodes]
    return sum(ys) / len(ys) if ys else 0


def _node(step: StepState) -> Node:
    if step.status is None:
        said = "done" if step.is_done else "failed" if step.has_failed else "gone"
        mark = "good" if step.is_done else "bad" if step.has_failed else ""
        return Node(x=0, y=0, title=short(step.name), said=f"{said}, no longer stored", mark=mark)
    word = STATUS_WORD.get(step.status, step.status.value)
    if step.held_by:
        word = short(f"held by {', '.join(step.held_by)}")
    return Node(
        x=0,
        y=0,
        title=short(step.name),
        said=word,
        mark="bad" if step.held_by else STATUS_CLASS.get(step.status, ""),
        job_id=step.job_id,
    )


def _mark_of_edge(before: StepState, step: StepState) -> str:
    if before.name in step.held_by:
        return EdgeState.HELD.value
    if before.is_done or before.has_failed:
        return EdgeState.SETTLED.value
    return EdgeState.OPEN.value
