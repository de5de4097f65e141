"""The program of ``forge-jobs top``: reads, draws, and does what keys ask for."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import anyio
from rich.console import Console
from rich.live import Live

from forge_jobs.cli.commands.terminal.screen.drawing import drawn
from forge_jobs.cli.commands.terminal.screen.keys import Keyboard, pressed, unseen_keys
from forge_jobs.cli.commands.terminal.screen.reading import Reader
from forge_jobs.cli.commands.terminal.screen.view import Deed, JobPane, Verb, View
from forge_jobs.cli.commands.terminal.signals import until_signal
from forge_jobs.cli.commands.terminal.telling import how_far
from forge_jobs.cli.logs import keep_off_the_screen
from forge_jobs.errors import ForgeJobsError, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.words import instant

_LINES = 12
"""Log lines of a job that is looked at: the newest."""


class Top:
    """A screen on one store.

    :param every: the time between two reads. A read that takes longer is followed by as long a rest
    """

    def __init__(self, operator: Operator, every: timedelta) -> None:
        self._operator = operator
        self._every = every.total_seconds()
        self._reader = Reader(operator)
        self._view = View(store=operator.storage.name)
        self._console = Console()
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stderr=False
        )
        self._keyboard: Keyboard | None = None
        self._soon = anyio.Event()
        self._stop: Callable[[], None] = lambda: None

    async def run(self) -> int:
        """Show the screen until ``q`` or a signal, and return the exit code."""
        keep_off_the_screen()
        with unseen_keys() as self._keyboard, self._live:
            self._draw()
            code = await until_signal(self._work, at_once=self._live.stop, away=self._away)
        return 0 if code == 128 + signal.SIGINT else code

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Leave the screen to the shell, and come back."""
        overflow = self._live.vertical_overflow
        self._live.stop()
        if self._keyboard is not None:
            self._keyboard.show()
        yield
        # First, as the terminal is the shell's while this process is in the background.
        if self._keyboard is not None:
            self._keyboard.hide()
        self._live.vertical_overflow = overflow
        self._live.start()
        self._draw()

    async def _work(self) -> None:
        async with anyio.create_task_group() as group:
            self._stop = group.cancel_scope.cancel
            group.start_soon(self._read_on)
            group.start_soon(self._follow_terminal)
            if self._keyboard is not None:
                group.start_soon(self._follow_keys, self._keyboard.descriptor)

    async def _read_on(self) -> None:
        while True:
            self._soon = anyio.Event()
            began = anyio.current_time()
            try:
                (await self._reader.read()).put_into(self._view)
                await self._read_job()
                self._view.away = ""
            except ForgeJobsError as error:
                self._view.away = str(error)
            self._draw()
            took = anyio.current_time() - began
            with anyio.move_on_after(max(self._every, took)):
                await self._soon.wait()

    async def _follow_terminal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as changes:
            async for number in changes:
                if number == signal.SIGCONT and self._keyboard is not None:
                    # Behind a stop the shell has set the terminal for its own lines.
                    self._keyboard.hide()
                self._draw()

    async def _follow_keys(self, descriptor: int) -> None:
        async for key in pressed(descriptor):
            deed = self._view.press(key)
            self._draw()
            if deed is not None and deed.verb is Verb.QUIT:
                break
            if deed is not None:
                await self._do(deed)
            if self._view.job_id and self._view.pane is None:
                self._soon.set()
        self._stop()

    async def _do(self, deed: Deed) -> None:
        try:
            self._view.message = await self._done(deed)
            self._view.picked = {}
        except ForgeJobsError as error:
            self._view.message = f"Not done: {error}"
        self._soon.set()
        self._draw()

    async def _done(self, deed: Deed) -> str:
        operator, count = self._operator, len(deed.names)
        some = f"Queue {deed.names[0]} is" if count == 1 else f"{count} queues are"
        if deed.verb is Verb.PAUSE:
            for name in deed.names:
                await operator.pause_queue(name)
            return f"{some} paused."
        if deed.verb is Verb.RESUME:
            for name in deed.names:
                await operator.resume_queue(name)
            return f"{some} resumed."
        if deed.verb is Verb.CANCEL:
            which = JobFilter(ids=tuple(JobId(name) for name in deed.names))
            total = await operator.cancel_jobs(which)
            if count == 1 and not total.refused:
                return "Asked to stop." if total.requested else "Cancelled."
            parts = (
                (total.requested, "asked to stop"),
                (total.changed, "cancelled"),
                (total.refused, f"refused: {next(iter(total.refused.values()), '')}"),
            )
            return f"{', '.join(f'{len(ids)} {said}' for ids, said in parts if ids)}."
        dead = JobFilter(queues=deed.names, statuses=(JobStatus.DEAD,))
        total = await operator.requeue_jobs(dead)
        of = f"queue {deed.names[0]}" if count == 1 else f"{count} queues"
        return f"{len(total.changed):,} jobs of {of} are requeued."

    async def _read_job(self) -> None:
        job_id = self._view.job_id
        if not job_id:
            return
        try:
            lines = await self._lines(job_id)
        except NotFound as error:
            lines = (str(error),)
        # Another key may have closed the job meanwhile.
        if self._view.job_id == job_id:
            self._view.pane = JobPane(job_id=job_id, lines=lines)

    async def _lines(self, job_id: str) -> tuple[str, ...]:
        state = await self._operator.job_progress(job_id)
        why = await self._operator.explain_job(job_id)
        log = (await self._operator.job_log(job_id)).lines[-_LINES:]
        return (
            f"{state.kind} in {state.queue}: {state.status.in_words}, attempt {state.attempt}",
            how_far(state.progress) if state.progress else "",
            why.text,
            "",
            *(f"{instant(line.at)} {line.text}" for line in log),
        )

    def _draw(self) -> None:
        width, height = self._console.size
        self._live.update(drawn(self._view, width=width, height=height), refresh=True)
