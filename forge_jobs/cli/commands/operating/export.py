"""``forge-jobs export``: the jobs of a filter, whole, as JSON Lines."""

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import click

from forge_jobs.cli.commands.terminal.signals import until_signal
from forge_jobs.cli.failures import describe
from forge_jobs.cli.options import deployment_options, with_operator
from forge_jobs.cli.output import json_line, talk
from forge_jobs.cli.selection import Which, filter_options, settled
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.operating.documents import document
from forge_jobs.operating.operator import Operator


@click.command()
@filter_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write this file, which is there only when the export is whole.",
)
@click.option("--cursor", help="Go on where an export broke off, with the same filter.")
@click.option(
    "--page",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    envvar="FORGE_EXPORT_PAGE",
    help="Jobs in memory at once (FORGE_EXPORT_PAGE).",
)
@deployment_options
def export(
    deployment: Deployment, which: Which, output: Path | None, cursor: str | None, page: int
) -> None:
    """Write jobs that match a filter, each as one JSON document on a line, newest first.

    Fields marked Secret are hidden, and encrypted payloads stay hidden. An export that breaks off
    says how to go on. With -o the lines are in FILE.part until the export is whole.
    """
    meant = settled(deployment, which)
    if cursor is not None and output is not None and not _part_of(output).exists():
        raise InvalidInput(
            "cursor", "is given, and there is no FILE.part", "begin without --cursor"
        )
    run = _Export(meant, cursor, page)
    try:
        with _Sheet(output, appends=cursor is not None) as sheet:
            code = with_operator(deployment, lambda operator: run.write(operator, sheet))
            if not code:
                sheet.finish()
    except BrokenPipeError:
        raise
    except Exception as error:
        if not run.lines:
            raise
        text, code = describe(error)
        talk(f"Error: {text}")
    talk(f"{run.lines:,} jobs are written.")
    if code:
        talk(f"Not all: go on with the same options and --cursor {run.cursor}")
        raise click.exceptions.Exit(code)


def _part_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.part")


class _Sheet(AbstractContextManager["_Sheet"]):
    """Where the lines go. A file has its name only when all lines are there."""

    def __init__(self, output: Path | None, *, appends: bool) -> None:
        self._output = output
        if output is None:
            self._file = sys.stdout.buffer
            return
        # Payloads are for the user alone.
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if appends else os.O_TRUNC)
        try:
            self._file = os.fdopen(os.open(_part_of(output), flags, 0o600), "wb")
        except OSError as error:
            fix = "name a file in a folder that can be written"
            raise InvalidInput("output", f"cannot be written: {error.strerror}", fix) from None

    def put(self, jobs: Iterable[object]) -> None:
        """Write whole lines. What was written is there when the process is killed."""
        of = document if self._output is not None else lambda job: json_line(job).encode()
        self._file.write(b"".join(of(job) + b"\n" for job in jobs))
        self._file.flush()

    def finish(self) -> None:
        """Give the file its name, once the disk has it."""
        if self._output is not None:
            os.fsync(self._file.fileno())
            _part_of(self._output).replace(self._output)

    def __exit__(self, *_: object) -> None:
        if self._output is not None:
            self._file.close()


class _Export:
    """An export, and how far that one has come."""

    def __init__(self, which: JobFilter, cursor: str | None, limit: int) -> None:
        self._which = which
        self._limit = limit
        self.cursor = cursor
        self.lines = 0

    async def write(self, operator: Operator, sheet: _Sheet) -> int:
        """Write page by page, and return the exit code."""
        return await until_signal(lambda: self._pages(operator, sheet))

    async def _pages(self, operator: Operator, sheet: _Sheet) -> None:
        while True:
            page = await operator.export_jobs(self._which, cursor=self.cursor, limit=self._limit)
            if page.silent:
                raise Unavailable(
                    f"the server of queues {', '.join(page.silent[:5])} does not answer; an export "
                    "without their jobs would look whole"
                )
            sheet.put(page.jobs)
            self.lines += len(page.jobs)
            if page.cursor is None:
                return
            self.cursor = page.cursor
