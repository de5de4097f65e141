"""The loop of a pod that relays one outbox."""

import asyncio
import random
from datetime import timedelta

from forge_jobs.clients.outbox.outbox import LOOK_EVERY, Outbox, OutboxSource
from forge_jobs.clock import Clock
from forge_jobs.errors import StorageClosed, StorageError, Unavailable
from forge_jobs.runtime.shared.service import PeriodicLoop, Wakeup

_LONGEST_PAUSE = timedelta(seconds=30)
"""Between two tries while a store is away."""


class OutboxLoop(PeriodicLoop):
    """Relays an outbox until :meth:`stop`, woken by each commit that the database tells of.

    Only this loop waits for the two stores of the outbox. While one of these is away the pod serves
    its queues, and the health of the loop has the reason.

    :param source: the outbox. A function is called until the outbox was opened
    """

    def __init__(
        self, name: str, source: OutboxSource, *, clock: Clock, rng: random.Random
    ) -> None:
        super().__init__(name, self._relay, _LONGEST_PAUSE, clock=clock, rng=rng)
        self._source = source
        self._outbox = source if isinstance(source, Outbox) else None

    async def run(self) -> None:
        """Make pass after pass until :meth:`stop`."""
        listener = asyncio.create_task(self._listen(), name=f"forge-jobs {self.name} listener")
        try:
            await super().run()
        finally:
            listener.cancel()
            await asyncio.wait({listener})

    async def _relay(self) -> timedelta:
        try:
            if self._outbox is None:
                assert not isinstance(self._source, Outbox)
                self._outbox = await self._source()
            report = await self._outbox.relay_once(is_stopping=lambda: self._stopping)
        except StorageClosed as error:
            # The pod's own storage may be open. Where that one was closed, the pod ends by itself.
            raise Unavailable(f"a storage of the outbox was closed: {error}") from error
        return timedelta(0) if report.more else LOOK_EVERY

    async def _listen(self) -> None:
        while True:
            if self._outbox is None or self.failures:
                # While a store is away the pauses count, and no wake-up shortens them.
                await Wakeup().wait(LOOK_EVERY)
                continue
            try:
                if await self._outbox.wait(LOOK_EVERY):
                    self.wakeup.wake()
            except StorageError:
                # The next pass meets the outage too, and reports it.
                await Wakeup().wait(LOOK_EVERY)
