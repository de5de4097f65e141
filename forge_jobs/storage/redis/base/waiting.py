"""The queues that this bundle waits for, as far as the store knows.

Nothing is published for a queue without waiters. A claim that finds too little notes in the same
step that its caller waits (``exchange.lua``), for a minute. A waiter that has not claimed lately
notes the wait by a separate call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal

from forge_jobs.clock import SystemClock
from forge_jobs.errors import StorageError

NOTE_AFTER_S = 40.0
"""Well before ``WAITED_FOR`` in ``wakes.lua`` less ``NOTED_AGAIN`` has passed."""

_AT_MOST_S = 1.0

_Told = Literal["new", "known", "missing"]

_elapsed = SystemClock().elapsed


class Waits:
    """The waits that one bundle has noted.

    :param note: notes queues in the store, and answers per queue what was known of it
    """

    def __init__(self, note: Callable[[list[str]], Awaitable[Mapping[str, _Told]]]) -> None:
        self._note = note
        self._noted: dict[str, float] = {}
        self._silences = 0

    def claimed(self, queue: str, asked_at: float) -> None:
        """Take note that a claim has noted the wait, or has brought all that was asked for."""
        self._noted[queue] = asked_at

    async def note(self, queues: Iterable[str], silences: int) -> frozenset[str]:
        """Note the queues that are due. Return the queues of which hints may have been missed.

        :param silences: how often wake-ups have been lost. The server may be another one since
        """
        if silences != self._silences:
            self._silences = silences
            self._noted.clear()
        now = _elapsed()
        due = [
            queue
            for queue in queues
            if queue not in self._noted or now - self._noted[queue] >= NOTE_AFTER_S
        ]
        if not due:
            return frozenset()
        try:
            async with asyncio.timeout(_AT_MOST_S):
                told = await self._note(due)
        except (StorageError, TimeoutError):
            return frozenset()  # what comes is found by polling, until this succeeds
        self._noted.update((queue, now) for queue in due if told[queue] != "missing")
        return frozenset(queue for queue in due if told[queue] == "new")
