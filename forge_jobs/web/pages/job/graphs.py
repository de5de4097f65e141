"""The graph of a workflow: each step right of those that the step comes after.

A large workflow is folded: a box stands for the steps of one kind in one level, or in several.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import structs

from forge_jobs.clients.flows.workflows import StepState
from forge_jobs.model.edges import EdgeState
from forge_jobs.web.pages.job.drawing import BOX, HEIGHT, STEP, Drawing, Node, curve, short
from forge_jobs.web.pages.words import STATUS_CLASS, STATUS_WORD, number

MOST_DRAWN = 60
"""Steps. The steps of a larger graph are folded."""

_COLUMNS, _ROWS, _LINES = 20, 3, 200
"""Columns, boxes of a column, and lines of a folded graph at most."""

_COLUMN = BOX + 60


def graph_of(steps: Sequence[StepState]) -> Drawing | None:
    """Return the graph of a workflow, folded where there are many steps. None with one step.

    :param steps: each after the steps that it comes after
    """
    if len(steps) <= 1:
        return None
    if len(steps) > MOST_DRAWN:
        return _folded(steps)
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


def _folded(steps: Sequence[StepState]) -> Drawing:
    """Return a graph of at most 60 boxes and 200 lines, whatever the workflow has.

    The lines that hold steps are drawn first, then those of edges that are open.
    """
    levels = _columns(steps)
    at_once = -(-len(levels) // _COLUMNS)
    ranges = [
        [step for level in levels[start : start + at_once] for step in level]
        for start in range(0, len(levels), at_once)
    ]
    columns = [_boxes(column) for column in ranges]
    height = max(len(boxes) for boxes in columns) * STEP - (STEP - HEIGHT)
    nodes: list[Node] = []
    box_of: dict[str, int] = {}
    for place, boxes in enumerate(columns):
        top = (height - (len(boxes) * STEP - (STEP - HEIGHT))) // 2
        for row, (title, inside) in enumerate(boxes):
            box_of.update(dict.fromkeys((step.name for step in inside), len(nodes)))
            node = _box(title, inside)
            nodes.append(structs.replace(node, x=place * _COLUMN, y=top + row * STEP))
    # Boxes of one column have no line between them.
    between = _lines_between(steps, box_of).items()
    marks = {pair: mark for pair, mark in between if nodes[pair[0]].x < nodes[pair[1]].x}
    worst = sorted(marks, key=lambda pair: (-_BY_WEIGHT.index(marks[pair]), pair))
    middle = HEIGHT // 2
    lines = [
        curve(nodes[a].x + BOX, nodes[a].y + middle, nodes[b].x, nodes[b].y + middle, marks[a, b])
        for a, b in worst[:_LINES]
    ]
    return Drawing(
        nodes=tuple(nodes),
        lines=tuple(lines),
        width=len(columns) * _COLUMN - (_COLUMN - BOX),
        height=height,
        label=(
            f"{number(len(steps))} steps in {number(len(levels))} levels, folded into "
            f"{len(nodes)} boxes with {len(lines)} lines, the first ones at the left"
        ),
        is_folded=True,
    )


_BY_WEIGHT = (EdgeState.SETTLED.value, EdgeState.OPEN.value, EdgeState.HELD.value)


def _lines_between(
    steps: Sequence[StepState], box_of: Mapping[str, int]
) -> dict[tuple[int, int], str]:
    """Return the lines between boxes, each with the mark of its worst edge."""
    by_name = {step.name: step for step in steps}
    found: dict[tuple[int, int], str] = {}
    for step in steps:
        for before in step.after:
            pair = box_of.get(before, -1), box_of[step.name]
            if before not in by_name or pair[0] == pair[1]:
                continue
            mark = _mark_of_edge(by_name[before], step)
            found[pair] = max(found.get(pair, mark), mark, key=_BY_WEIGHT.index)
    return found


def _boxes(column: Sequence[StepState]) -> list[tuple[str, list[StepState]]]:
    """Return the boxes of a column: the most frequent kinds, and one for all others."""
    kinds: defaultdict[str, list[StepState]] = defaultdict(list)
    for step in column:
        kinds[step.kind].append(step)
    # Steps without a kind are no longer stored.
    ordered = sorted(kinds, key=lambda kind: (not kind, -len(kinds[kind]), kind))
    shown = ordered if len(ordered) <= _ROWS else ordered[: _ROWS - 1]
    boxes = [(kind or "no longer stored", kinds[kind]) for kind in shown]
    if rest := ordered[len(shown) :]:
        others = [step for kind in rest for step in kinds[kind]]
        boxes.append((f"of {number(len(rest))} other kinds", others))
    return boxes


def _box(title: str, inside: Sequence[StepState]) -> Node:
    """Return the box of some steps, which opens the first that failed."""
    if len(inside) == 1:
        return _node(inside[0])
    counts: dict[str, int] = {}
    marks: dict[str, str] = {}
    for step in inside:
        node = _node(step)
        word = "held" if step.held_by else node.said.partition(",")[0]
        counts[word] = counts.get(word, 0) + 1
        marks[word] = node.mark
    worst = sorted(counts, key=lambda word: (_WORST.index(marks[word]), -counts[word]))
    failed = next((each for each in inside if each.has_failed and each.status is not None), None)
    return Node(
        x=0,
        y=0,
        title=short(f"{number(len(inside))} {title}"),
        said=short(", ".join(f"{number(counts[word])} {word}" for word in worst)),
        mark=marks[worst[0]],
        job_id="" if failed is None else failed.job_id,
    )


_WORST = ("bad", "warn", "run", "idle", "", "good")
"""A box has the first mark of its steps."""


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
