"""The output of ``forge-jobs watch``: lines, JSON Lines, or a bar on a terminal."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import click

from forge_jobs.cli.output import emit_json, printable
from forge_jobs.model.progress import JobState, LogPage, Progress
from forge_jobs.operating.documents import plain
from forge_jobs.operating.jobs.documents import JobView
from forge_jobs.operating.words import instant


class Telling(AbstractContextManager["Telling"]):
    """Tells of a job in lines for people."""

    away: Callable[[], AbstractContextManager[None]] | None = None
    """Leaves the terminal to a shell, and comes back. None: nothing has to be left."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def __exit__(self, *_: object) -> None:
        """Put the terminal back in order."""

    def state(self, state: JobState, job: JobView | None) -> None:
        """Tell of a change.

        :param job: all of the job when an attempt has failed
        """
        if state.progress is not None and state.progress != self._progress:
            self._progress = state.progress
            self.progress(state.progress)
        elif not state.is_final:
            self.write(_words(state, job))

    def lines(self, page: LogPage) -> None:
        """Tell what the handler has logged."""
        for line in page.lines:
            level = logging.getLevelName(line.level)
            first, *more = line.text.splitlines() or [""]
            self.write(f"{instant(line.at)} {level} {first}")
            for each in more:
                self.write(f"  {each}")

    def progress(self, progress: Progress) -> None:
        """Tell how far the run is."""
        self.write(how_far(progress))

    def outcome(self, state: JobState, job: JobView | None, code: int) -> None:
        """Tell how the job has ended."""
        self.write(_words(state, job))

    def write(self, text: str) -> None:
        """Write one line."""
        click.echo(printable(text))


class TellingJson(Telling):
    """Tells of a job in JSON Lines, each with a ``type``."""

    def state(self, state: JobState, job: JobView | None) -> None:
        """See the base."""
        emit_json({"type": "state", **plain(state)})

    def lines(self, page: LogPage) -> None:
        """See the base."""
        for line in page.lines:
            emit_json({"type": "line", "attempt": page.attempt, **plain(line)})

    def outcome(self, state: JobState, job: JobView | None, code: int) -> None:
        """See the base."""
        emit_json({"type": "outcome", "exit_code": code, **plain(state)})


class TellingOnATerminal(Telling):
    """Tells of a job in lines, with a bar below."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar: Bar = Bar(*columns, TimeElapsedColumn(), transient=True, refresh_per_second=2)
        self._task: Any = None

    def __enter__(self) -> "TellingOnATerminal":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """See the base."""
        self._bar.stop()

    @contextmanager
    def away(self) -> Iterator[None]:
        """See the base."""
        self._bar.stop()
        yield
        self._bar.start()

    def progress(self, progress: Progress) -> None:
        """Move the bar."""
        if self._task is None:
            self._task = self._bar.add_task("", total=None)
        self._bar.update(
            self._task,
            total=progress.total,
            completed=progress.current,
            description=printable(progress.message),
        )

    def write(self, text: str) -> None:
        """Write one line above the bar."""
        from rich.text import Text

        # Text, not str: what a handler logs in [brackets] is no markup.
        self._bar.console.print(Text(printable(text)), soft_wrap=True)


def how_far(progress: Progress) -> str:
    """Return how far a run is, as ``62% 31/50 pages``."""
    part = "" if progress.fraction is None else f"{progress.fraction:.0%} "
    of = "" if progress.total is None else f"/{progress.total:g}"
    return f"{part}{progress.current:g}{of} {progress.message}".rstrip()


def _words(state: JobState, job: JobView | None) -> str:
    name = f"{state.kind} in {state.queue}: {state.status.in_words}"
    if job is None or not job.errors:
        return f"{name}, attempt {state.attempt}" if state.attempt else name
    error = job.errors[-1]
    of = "" if job.max_attempts is None else f" of {job.max_attempts}"
    text = f"{name}, attempt {error.attempt}{of} {error.cause}: {error.type}: {error.message}"
    return text if job.finished_at else f"{text}; due again at {instant(job.due_at)}"
