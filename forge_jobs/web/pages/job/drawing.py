"""Graphs of jobs, drawn by the server: boxes with links, and curves between them."""

from msgspec import Struct

BOX, HEIGHT, STEP = 200, 44, 54
"""Width and height of a box, and the distance from one to the next below, in units of the graph."""

_LETTERS = 27


class Node(Struct, frozen=True, kw_only=True):
    """A job of a graph.

    :param job_id: "" for the job of the page, for removed ones and for those that are not drawn
    :param mark: the class of the status
    """

    x: int
    y: int
    title: str
    said: str
    mark: str = ""
    job_id: str = ""


class Line(Struct, frozen=True, kw_only=True):
    """An edge of a graph: the path, and the class of its state."""

    path: str
    mark: str


class Drawing(Struct, frozen=True, kw_only=True):
    """A graph.

    :param label: the graph in words
    :param is_folded: a box may stand for many jobs
    """

    nodes: tuple[Node, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    label: str
    box: int = BOX
    box_height: int = HEIGHT
    is_folded: bool = False


def curve(x: int, y: int, to_x: int, to_y: int, mark: str) -> Line:
    """Return an edge from the right side of one box to the left side of another."""
    bend = (x + to_x) // 2
    return Line(path=f"M{x},{y}C{bend},{y} {bend},{to_y} {to_x},{to_y}", mark=mark)


def short(text: str) -> str:
    """Return the text, cut to what a box has room for."""
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
