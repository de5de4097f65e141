"""Registries of the built-in handlers, for programs to include."""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from forge_jobs.commands.guarding import end_of, killed, not_started, undisturbed
from forge_jobs.commands.output import Kept, OutputPipe
from forge_jobs.commands.programs import Jail, Program, check_programs
from forge_jobs.errors import InvalidInput, RegistrationError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.outcomes import Dead, Failed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.runtime.executors.guarded import GuardedProgram, NoProcess, ProgramEnd
from forge_jobs.runtime.queue.job_context import kill_by

MAX_OUTPUT = 80 * 1024
"""As JSON a byte takes up to six, and two outputs have to fit into one result."""

_LAST_WORDS = 2_000
_TO_CLOSE = 1.0
"""Seconds to read what is left in the pipes when the program has ended. Only where a process has
escaped the guardian, on systems without prctl, does a pipe stay open."""

_LATER_THAN_THE_JOB = 1.0


class CommandResult(Struct, frozen=True):
    """The result of a command that ended well.

    :param exit_code: of the program
    :param stdout: what the program wrote there, at most ``max_output`` bytes: the beginning and the
        end. Bytes that are no UTF-8 are replaced
    :param stderr: likewise
    :param stdout_bytes: how many bytes the program wrote there
    :param stderr_bytes: likewise
    """

    exit_code: int
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int


def echo_handlers(kind: str = "noop_echo") -> HandlerRegistry:
    """Return a registry with a handler that returns what the job brings: ``{"value": ...}``.

    For a first job through a new deployment, and for measurements.

    :param kind: the name of the kind
    """
    registry = HandlerRegistry()
    registry.register(noop_echo, kind)
    return registry


async def noop_echo(value: Any = None) -> Any:
    """Return the value."""
    return value


def command_handlers(
    programs: Mapping[str, Program],
    *,
    folder: str | os.PathLike[str],
    timeout: timedelta | float,
    max_output: int = 32 * 1024,
    kind: str = "cmd_exec",
    **options: Any,
) -> HandlerRegistry:
    """Return a registry with a handler that runs programs of an allow-list, without a shell.

    A job brings ``{"argv": ["name", "argument", ...], "cwd": "a/folder/below"}``. The result is a
    :class:`CommandResult`. What is not allowed makes the job dead before a process starts.

    The program gets no descriptor and no variable of the worker. Cancel, timeout and stop send
    SIGTERM to the process group, and kill every process of the program after the patience. When the
    program ends, all processes that came from the program are killed.

    :param programs: by the name that jobs give as ``argv[0]``
    :param folder: in which commands run. An existing folder, with an absolute path
    :param timeout: of a run. A job may ask for less, and not for more
    :param max_output: bytes of stdout, and of stderr, that are kept. At most 80 KiB
    :param kind: the name of the kind. Two allow-lists need two kinds
    :param options: of :meth:`HandlerRegistry.job`, as ``queue`` and ``max_attempts``
    :raises RegistrationError: an option is wrong, or a program or the folder is not there
    """
    jail = Jail(folder)
    commands = _Commands(check_programs(programs, jail), jail, _seconds(timeout), max_output)
    if type(max_output) is not int or not 1 <= max_output <= MAX_OUTPUT:
        raise RegistrationError(f"max_output is {max_output!r}; give 1 to {MAX_OUTPUT} bytes")

    async def cmd_exec(ctx: JobContext, argv: list[str], cwd: str = "") -> CommandResult:
        """Run a program of the allow-list."""
        return await commands.run(ctx, argv, cwd)

    # Another allow-list is another handler, which a registry must not take for the same.
    cmd_exec.__qualname__ = f"cmd_exec({commands.fingerprint()})"
    registry = HandlerRegistry()
    registry.register(cmd_exec, kind, timeout=timeout, **options)
    return registry


class _Commands:
    def __init__(
        self, programs: dict[str, Program], jail: Jail, timeout: float, max_output: int
    ) -> None:
        self._programs = programs
        self._jail = jail
        self._timeout = timeout
        self._max_output = max_output

    def fingerprint(self) -> str:
        """Return a text that is another one where anything is configured otherwise."""
        parts = [self._programs, self._jail.root, self._timeout, self._max_output]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    async def run(self, ctx: JobContext, argv: Sequence[str], cwd: str) -> CommandResult:
        try:
            # In a thread: a folder may be on a disk that answers slowly.
            program, command, folder = await asyncio.to_thread(self._allowed, argv, cwd)
        except InvalidInput as error:
            raise Dead(f"not allowed: {error}") from None
        running = _Running(argv[0], program, self._max_output)
        try:
            # Later than the end of the job's own time, of which a job may have asked for more.
            async with asyncio.timeout(self._timeout + _LATER_THAN_THE_JOB):
                end = await running.run(ctx, command, folder)
        except TimeoutError:
            most = timedelta(seconds=self._timeout)
            raise Failed(f"{argv[0]} did not end within {most}, the most that is allowed") from None
        return running.judged(end)

    def _allowed(self, argv: Sequence[str], cwd: str) -> tuple[Program, list[str], Path]:
        program = self._programs.get(argv[0]) if argv else None
        if program is None:
            known = ", ".join(sorted(self._programs))
            problem = f"is {argv[0]!r:.200}" if argv else "is missing"
            raise InvalidInput("argv[0]", problem, f"give one of {known}")
        folder = self._jail.folder(cwd)
        return program, program.command(argv[0], argv[1:], self._jail, folder), folder


class _Running:
    """A single run of a program.

    :param name: for messages
    """

    def __init__(self, name: str, program: Program, max_output: int) -> None:
        self._name = name
        self._program = program
        self._kept = Kept(max_output), Kept(max_output)
        self._pipes = OutputPipe(self._kept[0]), OutputPipe(self._kept[1])

    async def run(self, ctx: JobContext, command: Sequence[str], folder: Path) -> ProgramEnd:
        """Run the program to the end. Cancelled: end the program, and raise.

        :raises Failed: the program cannot be started
        :raises Snoozed: the system has no room for a process
        """
        guarded = GuardedProgram()
        kill_by(ctx, guarded.kill)
        try:
            await undisturbed(self._start(guarded, command, folder))
            end = await end_of(guarded)
            await self._read_to_the_end()
        except (NoProcess, OSError) as error:
            raise not_started(self._name, error) from None
        except asyncio.CancelledError:
            await killed(guarded)
            raise
        finally:
            for pipe in self._pipes:
                pipe.close()
        return end

    async def _start(self, guarded: GuardedProgram, command: Sequence[str], folder: Path) -> None:
        stdout, stderr = self._pipes
        async with stdout.opened() as out, stderr.opened() as err:
            await guarded.start(
                command,
                environ=self._program.environ,
                folder=str(folder),
                streams=(subprocess.DEVNULL, out, err),
            )
            guarded.limit_memory(self._program.max_memory or 0)

    async def _read_to_the_end(self) -> None:
        await asyncio.wait([pipe.closed for pipe in self._pipes], timeout=_TO_CLOSE)

    def judged(self, end: ProgramEnd) -> CommandResult:
        """Return the result, or raise what the end means for the job."""
        stdout, stderr = self._kept
        if end.exit_code in self._program.success and not end.memory:
            return CommandResult(
                end.exit_code, stdout.text(), stderr.text(), stdout.total, stderr.total
            )
        words = (stderr if stderr.total else stdout).text().strip()[-_LAST_WORDS:]
        message = f"{self._name} {self._words(end)}" + (f": {words}" if words else "")
        retried = self._program.retried
        if end.exit_code >= 0 and retried is not None and end.exit_code not in retried:
            raise Dead(message)
        raise Failed(message)

    def _words(self, end: ProgramEnd) -> str:
        if not end.memory:
            return str(end)
        most = self._program.max_memory or 0
        return f"used {end.memory / 2**20:.0f} MiB of memory, max_memory is {most / 2**20:.0f} MiB"


def _seconds(timeout: timedelta | float) -> float:
    try:
        return check_duration("timeout", timeout, above_zero=True).total_seconds()
    except InvalidInput as error:
        raise RegistrationError(str(error)) from None
