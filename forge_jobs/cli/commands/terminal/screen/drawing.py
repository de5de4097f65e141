"""The screen as rich draws it. All texts go through ``printable`` and are no markup."""

from collections.abc import Iterable, Sequence
from datetime import UTC

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forge_jobs.cli.commands.terminal.screen.limits import LIMIT_COLUMNS, limit_cells
from forge_jobs.cli.commands.terminal.screen.view import HELP, Part, View
from forge_jobs.cli.commands.terminal.telling import how_far
from forge_jobs.cli.output import printable
from forge_jobs.operating.board.documents import QueueLine, Run
from forge_jobs.operating.health.documents import PodView
from forge_jobs.operating.metrics.latencies import QueueStats
from forge_jobs.operating.metrics.latencies import shown as seconds_shown
from forge_jobs.operating.words import duration
from forge_jobs.policy.explanations import name_of
from forge_jobs.policy.judgement.problems.problem import Problem, Severity

_BAR = 8
_BESIDE = 150
"""Columns from which on pods stand beside queues."""

_MARKS = {Severity.CRITICAL: "!!", Severity.WARNING: "! ", Severity.NOTICE: "- "}
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTICE: "dim"}
_CHOSEN = "reverse"
_KEYS = "q quit  / filter  ? keys  tab  enter job  P pause  C cancel  R requeue dead"

QUEUE_COLUMNS = (
    "QUEUE",
    "USED/GRANT/MAX",
    "",
    "DUE",
    "OLDEST",
    "IN/MIN",
    "OUT/MIN",
    "P95",
    "DEAD",
    "STANDING",
)
POD_COLUMNS = ("POD", "VERSION", "STATE", "SLOTS", "CPU", "LAG")
RUN_COLUMNS = ("JOB", "KIND", "QUEUE", "FOR", "PROGRESS", "POD")


def drawn(view: View, *, width: int, height: int) -> RenderableType:
    """Return the screen, at most so many lines high."""
    parts: list[RenderableType] = [_line(header(view), "bold")]
    if view.away:
        parts.append(_line(f"The store does not answer: {view.away}. What is shown is old.", "red"))
    if view.mode == "help":
        parts.append(_table(("KEY", "DOES"), HELP, width))
    elif view.mode == "job":
        lines = view.pane.lines if view.pane else ("Reading ...",)
        parts += [_line(line) for line in (view.job_id, *lines[: max(height - 4, 1)])]
    elif view.board is not None:
        parts += _list(view, width, height - len(parts) - 1)
    else:
        parts.append(_line("Reading ..."))
    parts.append(_line(footer(view), "bold" if view.asked else "dim"))
    return Group(*parts)


def header(view: View) -> str:
    """The first line: where, when, and how much flows."""
    at = f"{view.board.at.astimezone(UTC):%H:%M:%S} UTC" if view.board else ""
    enters = sum(_of(view.rates.get(name), *_IN) for name in view.rates)
    leaves = sum(_of(view.rates.get(name), *_OUT) for name in view.rates)
    flow = f"in {enters:.0f}/min  out {leaves:.0f}/min" if view.rates else ""
    return "  ".join(each for each in ("forge-jobs", view.store, at, flow) if each)


def footer(view: View) -> str:
    """The last line: a question, what came of a deed, or the keys."""
    if view.asked is not None:
        return f"{view.asked.words[:1].upper()}{view.asked.words[1:]}? y/n"
    if view.mode == "filter":
        return f"/{view.filter}_"
    if view.mode == "go":
        return "g: q queues, l limits, j running jobs"
    kept = f"filter: {view.filter}   " if view.filter else ""
    return kept + (view.message or _KEYS)


def problem_line(problem: Problem) -> str:
    """A problem in a line, with what is safe to do."""
    about = f" {problem.about}" if problem.about else ""
    return f"{_MARKS[problem.severity]}{about}  {problem.evidence} -> {problem.action}"


def queue_cells(queue: QueueLine, rates: QueueStats | None) -> tuple[str, ...]:
    """The cells of a queue."""
    return (
        queue.name,
        f"{queue.running}/{queue.granted}/{queue.max_workers}",
        _bar(queue),
        f"{queue.due:,}",
        duration(queue.oldest_due_for),
        _rate(rates, *_IN),
        _rate(rates, *_OUT),
        seconds_shown(rates.total.p95 if rates else None),
        f"{queue.dead:,}",
        queue.standing,
    )


def pod_cells(pod: PodView) -> tuple[str, ...]:
    """The cells of a pod."""
    gauges = pod.gauges
    return (
        name_of(pod),
        pod.pod.version,
        pod.standing,
        pod.slots_in_words,
        f"{gauges.cpu_percent:.0f}%" if gauges else "-",
        f"{gauges.loop_lag_ms:.0f} ms" if gauges else "-",
    )


def run_cells(run: Run) -> tuple[str, ...]:
    """The cells of a running job."""
    far = "asked to stop" if run.cancel_requested else how_far(run.progress) if run.progress else ""
    return (run.job_id, run.kind, run.queue, duration(run.running_for), far, run.pod)


def _list(view: View, width: int, height: int) -> list[RenderableType]:
    """Problems, queues, pods, limits and running jobs, in so many lines. No limits: no part."""
    assert view.board is not None
    shown = max(min(len(view.problems), 5, height // 4), 1)
    parts: list[RenderableType] = [
        _line(problem_line(each), _STYLES[each.severity]) for each in view.problems[:shown]
    ] or [_line("Nothing is wrong.", "green")]
    queues = [queue_cells(each, view.rates.get(each.name)) for each in view.queues()]
    pods = [pod_cells(each) for each in view.pods()]
    runs = [run_cells(each) for each in view.runs()]
    left = height - len(parts)
    beside = width >= _BESIDE
    room = max(left // 2 - 1, 2) if beside else max(left // 3 - 1, 2)
    of_queues = _part(view, "queues", QUEUE_COLUMNS, queues, room, width // 2 if beside else width)
    of_pods = _table(POD_COLUMNS, pods[:room], width // 2 if beside else width)
    if beside:
        both = Table.grid(padding=(0, 2), expand=True)
        both.add_row(of_queues, of_pods)
        parts.append(both)
        used = max(min(len(queues), room), min(len(pods), room)) + 1
    else:
        parts += [of_queues, of_pods]
        used = min(len(queues), room) + min(len(pods), room) + 2
    if limits := [limit_cells(each, view.board.at) for each in view.limits()]:
        few = max(min(len(limits), (left - used) // 2 - 1), 1)
        parts.append(_part(view, "limits", LIMIT_COLUMNS, limits, few, width))
        used += few + 1
    parts.append(_part(view, "runs", RUN_COLUMNS, runs, max(left - used - 2, 1), width))
    hidden = view.board.more_runs + max(len(runs) - max(left - used - 2, 1), 0)
    if hidden:
        parts.append(_line(f"and {hidden:,} more jobs in work", "dim"))
    return parts


def _part(  # noqa: PLR0917 - what to show and where
    view: View,
    part: Part,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int,
    width: int,
) -> RenderableType:
    """Return a part with its chosen line, which is always among the lines that fit."""
    names = view.names(part)
    at = names.index(view.at(part)) if names else 0
    first = max(min(at - room + 1, len(rows) - room), 0)
    chosen = at - first if view.part == part and names else None
    picked = view.picked.get(part, frozenset())
    marked = [
        (f"* {row[0]}", *row[1:]) if name in picked else row
        for name, row in zip(names, rows, strict=True)
    ]
    return _table(columns, marked[first : first + room], width, chosen=chosen)


def _table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    *,
    chosen: int | None = None,
) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), width=width)
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for at, row in enumerate(rows):
        cells = (Text(printable(cell)) for cell in row)
        table.add_row(*cells, style=_CHOSEN if at == chosen else None)
    return table


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _bar(queue: QueueLine) -> str:
    most = max(queue.max_workers, queue.granted, queue.running, 1)
    used = -(-queue.running * _BAR // most)
    return "#" * used + "." * (_BAR - used)


_IN = ("enqueued",)
_OUT = ("succeeded", "failed", "timed_out", "crashed")


def _of(stats: QueueStats | None, *names: str) -> float:
    return sum(stats.counts.get(name, 0) for name in names) / 5 if stats else 0.0


def _rate(stats: QueueStats | None, *names: str) -> str:
    return f"{_of(stats, *names):.0f}" if stats else "-"
