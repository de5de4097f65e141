"""The jobs before and after a job as a graph, drawn by the server."""

from collections.abc import Sequence

from msgspec import Struct

from forge_jobs.model.edges import EdgeState, Relative
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.jobs.documents import JobKin, JobView
from forge_jobs.web.pages.job.drawing import BOX, HEIGHT, STEP, Drawing, Line, Node, curve, short
from forge_jobs.web.pages.words import STATUS_CLASS, STATUS_WORD

DRAWN = 12
"""So many relatives are drawn on each side. The table has all."""

LISTED = 100

WIDTH = 720
_MIDDLE = (WIDTH - BOX) // 2

_SAID_OF_PARENT = {
    EdgeState.OPEN: "has to end first",
    EdgeState.HELD: "ended without success",
    EdgeState.SETTLED: "no longer waited for",
    EdgeState.DEAD: "ended dead",
    EdgeState.CANCELLED: "was cancelled",
}
_SAID_OF_CHILD = {
    EdgeState.OPEN: "waits for this job",
    EdgeState.HELD: "this job ended without success",
    EdgeState.SETTLED: "waits for this job no more",
    EdgeState.DEAD: "waits for this job no more",
    EdgeState.CANCELLED: "waits for this job no more",
}


class Row(Struct, frozen=True, kw_only=True):
    """A line of the table.

    :param side: ``before`` or ``after``
    """

    side: str
    job: Relative
    said: str


class Family(Drawing, frozen=True, kw_only=True):
    """The graph and the table of one job."""

    rows: tuple[Row, ...]
    more: bool


def family_of(job: JobView, kin: JobKin) -> Family | None:
    """Return the graph of a job, None where no job comes before or after."""
    if not (kin.parents or kin.children):
        return None
    left = _column(0, kin.parents, is_more=kin.more_parents)
    right = _column(WIDTH - BOX, kin.children, is_more=kin.more_children)
    height = max(len(left), len(right)) * STEP - (STEP - HEIGHT)
    left, right = _centred(left, height), _centred(right, height)
    own = Node(
        x=_MIDDLE,
        y=(height - HEIGHT) // 2,
        title=short(job.kind),
        said=f"this job, {STATUS_WORD.get(job.status, job.status.value)}",
        mark=f"self {STATUS_CLASS.get(job.status, '')}".strip(),
    )
    middle = own.y + HEIGHT // 2
    lines = [
        _line(BOX, node.y + HEIGHT // 2, _MIDDLE, middle, each)
        for node, each in zip(left, kin.parents[:DRAWN], strict=False)
    ]
    lines += [
        _line(_MIDDLE + BOX, middle, WIDTH - BOX, node.y + HEIGHT // 2, each)
        for node, each in zip(right, kin.children[:DRAWN], strict=False)
    ]
    rows = [Row(side="before", job=each, said=_SAID_OF_PARENT[each.edge]) for each in kin.parents]
    rows += [Row(side="after", job=each, said=_SAID_OF_CHILD[each.edge]) for each in kin.children]
    return Family(
        nodes=(*left, own, *right),
        lines=tuple(lines),
        rows=tuple(rows),
        width=WIDTH,
        height=height,
        label=f"{_count(kin.parents, kin.more_parents)} before this job and "
        f"{_count(kin.children, kin.more_children)} after",
        more=kin.more_parents or kin.more_children,
    )


def _count(jobs: Sequence[Relative], is_more: bool) -> str:
    number = f"{len(jobs)}+" if is_more else str(len(jobs))
    return f"{number} {'job' if number == '1' else 'jobs'}"


def _column(x: int, jobs: Sequence[Relative], *, is_more: bool) -> list[Node]:
    """Return the jobs of one side. A last node says how many are not drawn."""
    nodes = [
        Node(
            x=x,
            y=0,
            title=short(each.kind or "removed"),
            said=_said(each),
            mark="" if each.status is None else STATUS_CLASS.get(each.status, ""),
            job_id="" if each.status is None else each.id,
        )
        for each in jobs[:DRAWN]
    ]
    left = len(jobs) - len(nodes)
    if left or is_more:
        number = f"{left}+" if is_more else str(left)
        nodes.append(Node(x=x, y=0, title=f"{number} more", said="in the table"))
    return nodes


def _said(job: Relative) -> str:
    if job.status is None:
        return f"…{job.id[-6:]}, no longer stored"
    word = STATUS_WORD.get(JobStatus(job.status), job.status.value)
    return short(f"{word} in {job.queue}")


def _centred(nodes: Sequence[Node], height: int) -> list[Node]:
    top = (height - (len(nodes) * STEP - (STEP - HEIGHT))) // 2
    return [
        Node(
            x=node.x,
            y=top + place * STEP,
            title=node.title,
            said=node.said,
            mark=node.mark,
            job_id=node.job_id,
        )
        for place, node in enumerate(nodes)
    ]


def _line(x: int, y: int, to_x: int, to_y: int, job: Relative) -> Line:
    return curve(x, y, to_x, to_y, job.edge.value)
