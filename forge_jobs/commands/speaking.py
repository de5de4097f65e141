"""A program that stays for many jobs, and speaks one JSON object per line."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET, Struct, UnsetType

from forge_jobs.commands.output import Kept, OutputPipe
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.context import JobContext
from forge_jobs.runtime.executors.guarded import GuardedProgram, ProgramEnd, is_hung_up

MAX_LINE = 2 * 1024 * 1024
_LAST_WORDS = 4_000
_TO_QUIT, _TO_CLOSE = 1.0, 1.0


class Progress(Struct, frozen=True):
    """The progress that a program tells."""

    current: float
    total: float | None = None
    message: str = ""


class Said(Struct, frozen=True):
    """A line of a program, with one of ``result``, ``error``, ``progress`` and ``log``."""

    id: str
    result: Any = UNSET
    error: str | UnsetType = UNSET
    retry: bool = True
    progress: Progress | UnsetType = UNSET
    log: str | UnsetType = UNSET


class Broken(Struct, frozen=True):
    """The program does not keep to the protocol, and was killed."""

    problem: str


class Speaker:
    """A process of a warm pool. See ``Lent``."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], folder: str | None) -> None:
        self.program = GuardedProgram()
        self.runs = 0
        self.idle_since = 0.0
        self._argv = argv
        self._environ = environ
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._pipe: BinaryIO | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._stdout = OutputPipe(_Lines(self))
        self._words = Kept(_LAST_WORDS)
        self._stderr = OutputPipe(self._words)
        self._retired = False
        self._run: tuple[str, JobContext, asyncio.Future[Said | Broken | ProgramEnd]] | None = None
        self.program.ended.add_done_callback(self._has_ended)

    @property
    def is_alive(self) -> bool:
        """Return whether the program can take a job."""
        ends = self._stdout.closed.done() or self.program.ended.done()
        return not (self._retired or ends or is_hung_up(self._pipe))

    async def start(self) -> None:
        """Start the program.

        :raises NoProcess: says why there is none
        :raises OSError: too many files are open
        """
        try:
            await self._start()
        except BaseException:
            self.kill()
            self.program.give_up()
            raise

    async def _start(self) -> None:
        theirs, ours = os.pipe()
        try:
            self._pipe = os.fdopen(ours, "wb", 0)
            self._stdin, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, self._pipe)
            async with self._stdout.opened() as out, self._stderr.opened() as err:
                await self.program.start(
                    self._argv,
                    environ=self._environ,
                    folder=self._folder,
                    streams=(theirs, out, err),
                )
        finally:
            os.close(theirs)

    def ask(
        self, ctx: JobContext, payload: object, max_memory: int | None
    ) -> "asyncio.Future[Said | Broken | ProgramEnd]":
        """Send a job. The answer is what the program says, or how the program ended.

        :raises InvalidInput: the payload is no JSON
        """
        number = f"{ctx.job_id}.{ctx.token}"
        try:
            line = msgspec.json.encode({"id": number, "attempt": ctx.attempt, "payload": payload})
        except (TypeError, ValueError) as error:
            raise InvalidInput("payload", f"is no JSON ({error})", "give JSON types") from None
        self.runs += 1
        self._words = Kept(_LAST_WORDS)
        self._stderr.sink = self._words
        answer: asyncio.Future[Said | Broken | ProgramEnd] = self._loop.create_future()
        if self.program.ended.done() or self._stdin is None:
            answer.set_result(self.program.ended.result())
            return answer
        self._run = number, ctx, answer
        self.program.limit_memory(max_memory or 0)
        self._stdin.write(line + b"\n")
        return answer

    def rest(self) -> None:
        """Note that no job runs: from now on the program has to be silent."""
        self._run = None
        if self.is_alive:
            self.program.limit_memory(0)

    def last_words(self) -> str:
        """Return the end of what the program wrote to stderr in this run."""
        return self._words.text().strip()

    def retire(self) -> None:
        """End stdin, for the program to quit. Kill what is left a second later."""
        self._retired = True
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.close()
        self._loop.call_later(_TO_QUIT, self.program.kill)

    def kill(self) -> None:
        """Kill the program and all processes that came from the program."""
        self._retired = True
        self.program.kill()
        self._hang_up()

    def hear(self, line: bytes) -> None:
        """Take a line of the program."""
        try:
            said = msgspec.json.decode(line, type=Said)
            if self._run is None or said.id != self._run[0]:
                raise ValueError("which belongs to no job that runs here")
            if self._run[2].done():
                raise ValueError("which comes after the answer")
            self._obey(said, self._run[1])
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            self.give_up(f"wrote {line[:200].decode('utf-8', 'replace')!r}: {error}")

    def _obey(self, said: Said, ctx: JobContext) -> None:
        if said.progress is not UNSET:
            progress = said.progress
            ctx.progress.set(progress.current, progress.total, progress.message)
        if said.log is not UNSET:
            ctx.log.info("%s", said.log)
        if said.result is not UNSET or said.error is not UNSET:
            self._answer(said)

    def give_up(self, problem: str) -> None:
        """Kill a program that does not keep to the protocol."""
        self._answer(Broken(problem))
        self.kill()

    def _answer(self, answer: Said | Broken | ProgramEnd) -> None:
        if self._run is not None and not self._run[2].done():
            self._run[2].set_result(answer)

    def _has_ended(self, _: object) -> None:
        self._hang_up()
        # An answer that was written before the end may still be in the pipe.
        self._stdout.closed.add_done_callback(self._tell_end)
        self._loop.call_later(_TO_CLOSE, self._close)

    def _hang_up(self) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.abort()

    def _close(self) -> None:
        self._stdout.close()
        self._stderr.close()
        self._tell_end()

    def _tell_end(self, _: object = None) -> None:
        self._answer(self.program.ended.result())


class _Lines:
    """Cuts the output of a program into lines."""

    is_full = True

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Take what was written next."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._speaker.hear(line)
        if len(self._rest) > MAX_LINE:
            self._rest = b""
            self._speaker.give_up(f"wrote a line of more than {MAX_LINE} bytes")
