"""The loop of a pod that relays one outbox."""

import asyncio
import random
from collections.abc import Iterable
from datetime import datetime, timedelta

from forge_jobs.clients.outbox.outbox import LOOK_EVERY, Outbox, OutboxSource
from forge_jobs.clock import Clock
from forge_jobs.errors import StorageClosed, StorageError, Unavailable
from forge_jobs.model.processes import OutboxGauge
from forge_jobs.runtime.shared.service import PeriodicLoop, Wakeup

_LONGEST_PAUSE = timedelta(seconds=30)
"""Between two tries while a store is away."""

_PATIENCE = 2.0
"""Seconds for which gauges wait for the database of an outbox."""


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
        self._clock = clock
        self._relayed: float | None = None

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
        self._relayed = self._clock.elapsed()
        return timedelta(0) if report.more else LOOK_EVERY

    async def measured(self, now: datetime) -> OutboxGauge | None:
        """Return the state of the outbox. None before the first opening.

        :param now: by the clock of the pod's store
        :raises StorageError: the database of the outbox is away
        """
        outbox = self._outbox
        if outbox is None:
            return None
        state = await outbox.state()
        first = (await outbox.records(1))[:1] if state.set_aside else []
        return OutboxGauge(
            name=outbox.name,
            waiting=state.waiting,
            waiting_since=None if state.oldest is None else now - state.oldest,
            set_aside=state.set_aside,
            aside_since=now - first[0].age if first else None,
            relayed_at=None if self._relayed is None else now - self._since(self._relayed),
        )

    def _since(self, elapsed: float) -> timedelta:
        return timedelta(seconds=max(self._clock.elapsed() - elapsed, 0))

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


async def measure_all(loops: Iterable[OutboxLoop], now: datetime) -> tuple[OutboxGauge, ...]:
    """Return the states of outboxes. A database that is away or slow leaves its outbox out, and is
    not waited for longer than two seconds.
    """
    readings = [asyncio.ensure_future(loop.measured(now)) for loop in loops]
    if not readings:
        return ()
    done, late = await asyncio.wait(readings, timeout=_PATIENCE)
    for each in late:
        each.cancel()
    await asyncio.wait(readings)
    found = [each.result() for each in readings if each in done and _is_answered(each)]
    return tuple(gauge for gauge in found if gauge is not None)


def _is_answered(reading: "asyncio.Future[OutboxGauge | None]") -> bool:
    if reading.cancelled():
        return False
    error = reading.exception()
    if error is not None and not isinstance(error, StorageError):
        raise error
    return error is None
