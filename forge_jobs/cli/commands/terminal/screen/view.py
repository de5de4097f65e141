"""The state of the screen, and the meaning of keys. Pure: no terminal, no store."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from forge_jobs.cli.commands.terminal.screen.limits import LimitRow
from forge_jobs.operating.board.documents import Board, QueueLine, Run
from forge_jobs.operating.health.documents import PodView
from forge_jobs.operating.metrics.latencies import QueueStats
from forge_jobs.policy.explanations import name_of
from forge_jobs.policy.judgement.problems.problem import Problem

Part = Literal["queues", "limits", "runs"]

PARTS: tuple[Part, ...] = ("queues", "limits", "runs")

HELP = (
    ("q", "quit"),
    ("/", "filter by a part of a name, enter or escape ends"),
    ("tab, g q, g l, g j", "go to queues, limits or running jobs"),
    ("j k, arrows", "go down and up"),
    ("x, A", "select the line, or all lines and none: capitals act on what is selected"),
    ("enter", "look at the job, again: back"),
    ("P", "pause or resume the queue"),
    ("C", "cancel the job"),
    ("R", "requeue all dead jobs of the queue"),
    ("?", "these lines"),
)
"""Keys and what they do. Capitals act, and ask before."""


class Verb(StrEnum):
    """The verbs that keys ask for."""

    QUIT = "quit"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    REQUEUE = "requeue"


class Deed(Struct, frozen=True):
    """Something to do.

    :param names: of queues, or the ids of jobs
    :param words: the deed for people, as ``pause queue mail``
    """

    verb: Verb
    names: tuple[str, ...] = ()
    words: str = ""


class JobPane(Struct, frozen=True, kw_only=True):
    """The job that is looked at, in lines."""

    job_id: str
    lines: tuple[str, ...]


class View(Struct, kw_only=True):
    """All that the screen shows.

    :param asked: the deed that waits for a yes
    :param away: what the store's silence was called, "" while the store answers
    :param chosen: of each part the name of the line that is chosen. A line stays chosen while
        others come and go
    :param picked: of each part the names of the lines that are selected
    """

    store: str = ""
    board: Board | None = None
    problems: Sequence[Problem] = ()
    rates: Mapping[str, QueueStats] = {}
    limit_rows: Sequence[LimitRow] = ()
    away: str = ""
    message: str = ""
    filter: str = ""
    mode: Literal["list", "filter", "go", "help", "job"] = "list"
    part: Part = "queues"
    chosen: dict[str, str] = {}
    picked: dict[str, frozenset[str]] = {}
    asked: Deed | None = None
    job_id: str = ""
    pane: JobPane | None = None

    def queues(self) -> list[QueueLine]:
        """Queues that match the filter, those with the oldest due job first."""
        found = (
            [each for each in self.board.queues if self._matches(each.name)] if self.board else []
        )
        return sorted(found, key=_by_wait)

    def pods(self) -> list[PodView]:
        """Pods that match the filter by their own name or by that of a queue."""
        if self.board is None:
            return []
        return [each for each in self.board.pods if self._matches(name_of(each), *each.pod.queues)]

    def runs(self) -> list[Run]:
        """Running jobs that match the filter, the longest first."""
        if self.board is None:
            return []
        return [
            each
            for each in self.board.runs
            if self._matches(each.job_id, each.queue, each.kind, each.pod)
        ]

    def limits(self) -> list[LimitRow]:
        """Lines of limits that match the filter by limit, queue or key."""
        return [
            each for each in self.limit_rows if self._matches(each.name, each.queue, each.key or "")
        ]

    def names(self, part: Part) -> list[str]:
        """Names of the lines of a part."""
        if part == "queues":
            return [each.name for each in self.queues()]
        if part == "limits":
            return [each.id for each in self.limits()]
        return [each.job_id for each in self.runs()]

    def at(self, part: Part) -> str:
        """The name of the chosen line. "" when there is none."""
        names = self.names(part)
        name = self.chosen.get(part, "")
        return name if name in names else (names[0] if names else "")

    def meant(self, part: Part) -> list[str]:
        """The names of the lines that a deed is for: those that are selected, or the chosen one."""
        picked = self.picked.get(part, frozenset())
        found = [name for name in self.names(part) if name in picked]
        return found or [name for name in (self.at(part),) if name]

    def press(self, key: str) -> Deed | None:
        """Change the view as a key says. A deed is returned to be done."""
        if self.asked is not None:
            asked, self.asked = self.asked, None
            self.message = "" if key == "y" else "Left as it was."
            return asked if key == "y" else None
        if self.mode == "filter":
            self._type(key)
            return None
        self.message = ""
        if self.mode == "go":
            self.mode, self.part = "list", _PLACES.get(key, self.part)
            return None
        if self.mode in ("help", "job") and key in ("q", "escape", "enter", "?"):
            self.mode, self.job_id, self.pane = "list", "", None
            return None
        if key == "q":
            return Deed(Verb.QUIT)
        self._go(key)
        if key in _CAPITALS:
            self._ask(key)
        return None

    def _type(self, key: str) -> None:
        if key == "enter":
            self.mode = "list"
        elif key == "escape":
            self.mode, self.filter = "list", ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and len(self.filter) < 60:
            self.filter += key

    def _go(self, key: str) -> None:
        if key == "/":
            self.mode, self.filter = "filter", ""
        elif key == "?":
            self.mode = "help"
        elif key == "g" and self.mode == "list":
            self.mode = "go"
        elif key == "x" and (name := self.at(self.part)):
            self.picked = {**self.picked, self.part: self._picked() ^ {name}}
        elif key == "A":
            every = frozenset(self.names(self.part))
            self.picked = {**self.picked, self.part: every - self._picked() and every}
        elif key == "tab":
            # A part that is not on the screen is passed over.
            parts = [each for each in PARTS if each != "limits" or self.limits()]
            at = parts.index(self.part) if self.part in parts else 0
            self.part = parts[(at + 1) % len(parts)]
        elif key in _STEPS and (names := self.names(self.part)):
            at = names.index(self.at(self.part)) + _STEPS[key]
            self.chosen = {**self.chosen, self.part: names[min(max(at, 0), len(names) - 1)]}
        elif key == "enter" and self.part == "runs" and (job_id := self.at("runs")):
            self.mode, self.job_id = "job", job_id

    def _picked(self) -> frozenset[str]:
        return self.picked.get(self.part, frozenset()) & set(self.names(self.part))

    def _ask(self, key: str) -> None:
        """Ask before a deed. The deed concerns what is meant now, whatever comes meanwhile."""
        names = set(self.meant("queues"))
        queues = [each for each in self.queues() if each.name in names]
        running = [each for each in queues if not each.paused]
        dead = [each for each in queues if each.dead]
        if key == "C" and (jobs := [self.job_id] if self.job_id else self.meant("runs")):
            self.asked = Deed(Verb.CANCEL, tuple(jobs), f"cancel {_several('job', jobs)}")
        elif key == "P" and queues:
            # Queues that are selected are resumed when all of them are paused.
            verb = Verb.PAUSE if running else Verb.RESUME
            found = [each.name for each in running or queues]
            self.asked = Deed(verb, tuple(found), f"{verb} {_several('queue', found)}")
        elif key == "R" and dead:
            found = [each.name for each in dead]
            count = sum(each.dead for each in dead)
            words = f"requeue {count:,} dead jobs of {_several('queue', found)}"
            self.asked = Deed(Verb.REQUEUE, tuple(found), words)
        else:
            self.message = "There is nothing for this key."

    def _matches(self, *names: str) -> bool:
        wanted = self.filter.casefold()
        return any(wanted in name.casefold() for name in names)


_STEPS = {"j": 1, "down": 1, "k": -1, "up": -1}
_CAPITALS = frozenset("PCR")
_PLACES: Mapping[str, Part] = {"q": "queues", "l": "limits", "j": "runs"}
"""Parts by the letter behind ``g``, as on the dashboard."""


def _several(noun: str, names: Sequence[str]) -> str:
    return f"{noun} {names[0]}" if len(names) == 1 else f"{len(names)} {noun}s"


def _by_wait(queue: QueueLine) -> tuple[float, str]:
    waited = queue.oldest_due_for.total_seconds() if queue.oldest_due_for else 0.0
    return -waited, queue.name
