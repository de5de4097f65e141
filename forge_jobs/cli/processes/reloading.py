"""Worker processes that run the newest code: replaced whenever files change."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.cli.processes.changes import SourceFiles
from forge_jobs.cli.processes.link import STOP
from forge_jobs.cli.processes.process import Child, Process
from forge_jobs.cli.processes.slot import Slot, in_words
from forge_jobs.reports import reporter

logger = reporter(__name__)


class ReloadedSlot(Slot):
    """A slot whose process is stopped, and another started beside, at each change.

    The old process begins no job from then on, and the running ones have the grace. A process that
    ends before a pod runs has code that does not load, so the next change is waited for.

    :param child: started anew each time
    :param longest: how long a process may take to stop, before it is killed
    """

    def __init__(self, number: int, child: Child, *, longest: timedelta) -> None:
        super().__init__(number, child, restart=True, turn=asyncio.Lock(), turn_at_most=longest)
        # Bad input of a start is mended by a change.
        self._has_run = True
        self._longest = longest.total_seconds()
        self._change: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reload(self) -> None:
        """Run the code as it is now."""
        if not self._change.done():
            self._change.set_result(None)
        self._pause.wake()

    def _causes(self, process: Process) -> "Sequence[asyncio.Future[None]]":
        return [] if self._stopping else [self._change]

    async def _start(self, *options: str) -> Process | None:
        # What changes from here on is not in the process.
        self._change = asyncio.get_running_loop().create_future()
        return await super()._start(*options)

    async def _next(self, process: Process) -> Process | None:
        if self._stopping:
            self.exit_code = process.end.result() if process.end.done() else await process.end
            return None
        if not process.end.done():
            self._leave(process)
            return await self._start()
        if self._change.done():
            return await self._start()
        if process.started.done():
            return await self._start_again(process)
        logger.error(
            "worker process %d ended with %s before it could run jobs, see the lines above; jobs "
            "wait, and the process is started again when a file changes",
            self.number,
            in_words(process.end.result()),
        )
        while not (self._change.done() or self._stopping):
            await self._pause.wait()
        return await self._start()

    def _leave(self, old: Process) -> None:
        """Let a process end beside the one that follows."""
        self._asked.add(old)
        old.say(STOP)
        leaving = asyncio.ensure_future(self._ends(old))
        self._retiring.add(leaving)
        leaving.add_done_callback(self._retiring.discard)

    async def _ends(self, old: Process) -> None:
        await asyncio.wait({old.end}, timeout=self._longest)
        if not old.end.done():
            old.kill()
        if code := await old.end:
            logger.warning(
                "worker process %d, which ran the code before the change, ended with %s",
                self.number,
                in_words(code),
            )


async def reload_at_changes(files: SourceFiles, slots: Sequence[ReloadedSlot]) -> None:
    """Reload all slots at each change, without end."""
    while True:
        first, *more = await files.changed()
        logger.info(
            "%s%s changed: worker processes start with the new code",
            first,
            f" and {len(more)} more files have" if more else " has",
        )
        for slot in slots:
            slot.reload()
