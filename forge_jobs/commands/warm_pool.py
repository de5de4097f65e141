"""A pool of programs that stay warm, for handlers."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from msgspec import UNSET

from forge_jobs.commands.guarding import not_started, stop
from forge_jobs.commands.programs import check_text, environment, resolved
from forge_jobs.commands.speaking import Broken, Said, Speaker
from forge_jobs.errors import RegistrationError, a_type
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead, Failed
from forge_jobs.runtime.executors.guarded import NoProcess, ProgramEnd
from forge_jobs.runtime.executors.warm import WarmPrograms
from forge_jobs.runtime.queue.job_context import kill_by


class WarmPool:
    """Processes of one program that answer one job after another: one JSON object per line.

    For programs whose start is dear: a model, a browser, a virtual machine. Used as an asynchronous
    context manager, by ``Shared``, so that a worker has one pool. There are as many processes as
    calls at once. A process without a call for a minute ends.

    To the program, on stdin: ``{"id": "...", "attempt": 1, "payload": ...}``. From the program, on
    stdout, with the same id: any number of ``{"id": ..., "progress": {"current": 1, "total": 3}}``
    and ``{"id": ..., "log": "text"}``, then ``{"id": ..., "result": ...}``, or
    ``{"id": ..., "error": "text"}``, with ``"retry": false`` when no later try can help. The end of
    stdin asks the program to quit.

    :param argv: the program and the arguments. The program by an absolute path, or by a bare name
        that is looked up in ``PATH`` once, here
    :param folder: in which the program runs. None: that of the worker
    :param environ: variables beside the minimal environment. See :class:`Program`
    :param max_runs: a process ends after so many calls, and the next call gets a new one
    :param max_memory: in bytes, of all processes of one program. Above that they are killed, and
        the attempt fails
    :raises RegistrationError: there is no such program, or an option is wrong
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        folder: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        max_runs: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        if isinstance(argv, str) or not argv:
            raise RegistrationError(f"argv is {a_type(argv)}; give a list, the program first")
        self._argv = [resolved(argv[0]), *(check_text("argv", each) for each in argv[1:])]
        self._folder = None if folder is None else os.fspath(folder)
        if self._folder is not None and not os.path.isdir(self._folder):
            raise RegistrationError(
                f"folder is {self._folder!r}, and there is no such folder; make it first"
            )
        self._environ = environment(environ)
        for name, value in (("max_runs", max_runs), ("max_memory", max_memory)):
            if value is not None and (type(value) is not int or value < 1):
                raise RegistrationError(f"{name} is {value!r}; give a whole number, at least 1")
        self._max_runs = max_runs
        self._max_memory = max_memory
        self._warm: WarmPrograms[Speaker] | None = None

    def __repr__(self) -> str:
        return f"WarmPool({self._argv!r})"

    async def __aenter__(self) -> "WarmPool":
        self._warm = WarmPrograms(lambda: Speaker(self._argv, self._environ, self._folder))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        warm, self._warm = self._warm, None
        if warm is not None:
            await warm.close()

    async def call(self, ctx: JobContext, payload: object) -> Any:
        """Have a process do the job, and return the result.

        A cancellation sends SIGTERM to the process group. After the patience every process is
        killed. The next call gets another process.

        :param ctx: of the run. Gets the progress and the log lines
        :param payload: JSON types
        :raises Failed: the program answered with an error, died, or does not keep to the protocol
        :raises Dead: the program answered with an error and ``"retry": false``
        :raises Snoozed: the system has no room for a process
        :raises InvalidInput: the payload is no JSON
        """
        warm = self._warm
        if warm is None:
            raise RuntimeError(f"{self!r} is not open; write async with WarmPool(...) as pool")
        try:
            speaker = await warm.take()
        except (NoProcess, OSError) as error:
            raise not_started(self._argv[0], error) from None
        kill_by(ctx, speaker.kill)
        try:
            answer = await self._answer(ctx, speaker, payload)
        finally:
            speaker.rest()
            warm.give_back(speaker, self._max_runs)
        return self._judged(answer, speaker)

    async def _answer(
        self, ctx: JobContext, speaker: Speaker, payload: object
    ) -> Said | Broken | ProgramEnd:
        answer = speaker.ask(ctx, payload, self._max_memory)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await stop(speaker.program)
            raise

    def _judged(self, answer: Said | Broken | ProgramEnd, speaker: Speaker) -> Any:
        if isinstance(answer, Said):
            if answer.error is UNSET:
                return answer.result
            raise Failed(answer.error) if answer.retry else Dead(answer.error)
        words = answer.problem if isinstance(answer, Broken) else _words(answer)
        last = speaker.last_words()
        raise Failed(f"{self._argv[0]} {words}" + (f": {last}" if last else ""))


def _words(end: ProgramEnd) -> str:
    if end.memory:
        return f"was killed, {end.memory / 2**20:.0f} MiB of memory were in use"
    return f"{end} before the answer"
