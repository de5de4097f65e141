"""How the demo is shown: live on a terminal, as lines elsewhere, or not at all."""

from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import click
from msgspec import Struct

from forge_jobs.demo.handlers import FILES
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodState

if TYPE_CHECKING:
    from rich.console import RenderableType

_ACTIVE = ("blocked", "pending", "in_progress", "failed")
_SHOWN = (*_ACTIVE, "done", "dead")
_LINE_EVERY = 1.0
_RATE_OVER = 2.0
_RATE_EVERY, _LINE_LENGTH = 0.5, 60
_BARS = "▁▂▃▄▅▆▇█"


class Observation(Struct, frozen=True, kw_only=True):
    """How things stand at one moment.

    :param seconds: since the demo began
    :param counts: per queue, jobs by status
    :param failures: attempts that failed so far
    :param revived: claims taken over so far
    """

    seconds: float
    counts: Mapping[str, Mapping[str, int]]
    pods: tuple[PodState, ...]
    failures: int
    revived: int

    def done(self, queue: str) -> int:
        """How many jobs of a queue succeeded."""
        return self.counts.get(queue, {}).get("done", 0)

    def active(self, *queues: str) -> int:
        """How many jobs have not ended yet. Of all queues when none is named."""
        return sum(
            by_status.get(status, 0)
            for queue, by_status in self.counts.items()
            for status in _ACTIVE
            if not queues or queue in queues
        )

    def ended(self, queue: str) -> tuple[int, int]:
        """How many jobs of a queue have ended, and how many there are."""
        by_status = self.counts.get(queue, {})
        total = sum(by_status.values())
        return total - self.active(queue), total

    def is_served(self, queue: str) -> bool:
        """True when a live pod has a slot for a queue."""
        return any(
            pod.slots[queue].grant
            for pod in self.pods
            if pod.standing == "live" and queue in pod.slots
        )


class View(Protocol):
    """A display of the demo. A context manager: open while the demo runs."""

    def __enter__(self) -> "View": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, observation: Observation) -> None:
        """How things stand now."""
        ...

    def say(self, text: str) -> None:
        """Something has happened."""
        ...


def sparkline(rates: Iterable[float]) -> str:
    """Return rates as a line of bars, the highest as high as a line of text."""
    found = [*rates]
    most = max(found, default=0.0)
    if most <= 0.0:
        return _BARS[0] * len(found)
    return "".join(_BARS[round(rate / most * (len(_BARS) - 1))] for rate in found)


class _Pace:
    """Files per second over the last moments."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()
        self._rates: deque[float] = deque(maxlen=_LINE_LENGTH)
        self._next = 0.0

    @property
    def line(self) -> str:
        """The rates of the last half minute, the newest last."""
        return sparkline(self._rates)

    def add(self, observation: Observation) -> float:
        self._points.append((observation.seconds, observation.done(FILES)))
        while self._points[0][0] < observation.seconds - _RATE_OVER:
            self._points.popleft()
        (began, first), (now, last) = self._points[0], self._points[-1]
        rate = (last - first) / (now - began) if now > began else 0.0
        if now >= self._next:
            self._next = now + _RATE_EVERY
            self._rates.append(rate)
        return rate


class SilentView:
    """Shows nothing: the summary alone is wanted."""

    def __enter__(self) -> "SilentView":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, observation: Observation) -> None:
        return

    def say(self, text: str) -> None:
        return


class PlainView(SilentView):
    """A line per second, and a line per event."""

    def __init__(self) -> None:
        self._pace = _Pace()
        self._seconds = 0.0
        self._next = 0.0

    def show(self, observation: Observation) -> None:
        rate = self._pace.add(observation)
        self._seconds = observation.seconds
        if observation.seconds < self._next:
            return
        self._next = observation.seconds + _LINE_EVERY
        files = observation.counts.get(FILES, {})
        states = ", ".join(
            f"{files[name]} {JobStatus(name).in_words}" for name in _SHOWN if files.get(name)
        )
        pods = " + ".join(_pod_text(pod) for pod in observation.pods) or "none yet"
        ended, total = observation.ended(FILES)
        part = f"{ended / total:4.0%}" if total else "  0%"
        click.echo(
            f"{observation.seconds:5.1f} s  {part}  {rate:4.0f}/s  files: {states}; pods: {pods}"
        )

    def say(self, text: str) -> None:
        click.echo(f"{self._seconds:5.1f} s  {text}")


def _pod_text(pod: PodState) -> str:
    grant = pod.slots[FILES].grant if FILES in pod.slots else 0
    return f"{pod.pod.label} {grant} slots" if pod.standing == "live" else f"{pod.pod.label} lost"


class LiveView:
    """Tables that are drawn anew in place."""

    def __init__(self) -> None:
        from rich.live import Live

        self._pace = _Pace()
        self._seconds = 0.0
        self._news: deque[str] = deque(maxlen=8)
        self._live = Live(auto_refresh=False)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, observation: Observation) -> None:
        rate = self._pace.add(observation)
        self._seconds = observation.seconds
        self._live.update(self._draw(observation, rate), refresh=True)

    def say(self, text: str) -> None:
        self._news.append(f"{self._seconds:5.1f} s  {text}")

    def _draw(self, observation: Observation, rate: float) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        ended, total = observation.ended(FILES)
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=max(total, 1), completed=ended, width=_LINE_LENGTH),
            f"{ended} of {total} files",
        )
        pace = Text(f"{self._pace.line}  files/s", style="cyan", no_wrap=True)
        head = (
            f"{observation.seconds:5.1f} s   {rate:.0f} files/s   "
            f"{observation.failures} failed attempts   {observation.revived} taken over"
        )
        news = Text("\n".join(self._news), style="yellow")
        return Group(
            Text(head, style="bold"),
            bar,
            pace,
            _queue_table(observation),
            _pod_table(observation),
            news,
        )


def _queue_table(observation: Observation) -> "RenderableType":
    from rich.table import Table

    table = Table("queue", box=None, header_style="dim", pad_edge=False)
    for name in _SHOWN:
        table.add_column(JobStatus(name).in_words, justify="right")
    for queue, by_status in observation.counts.items():
        table.add_row(queue, *(str(by_status.get(name, 0)) for name in _SHOWN))
    return table


def _pod_table(observation: Observation) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    columns = ("pod", "process", "state", "slots", "in progress")
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    for pod in observation.pods:
        state = pod.standing
        style = "green" if state == "live" else "red"
        held = str(sum(pod.in_progress.values()))
        process = str(pod.pod.process_id)
        label, slots = Text(pod.pod.label), Text(pod.slots_in_words)
        table.add_row(label, process, Text(state, style=style), slots, held)
    return table
