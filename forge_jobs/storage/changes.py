"""Wake-ups for those who watch jobs. Nothing is sent of queues that no process watches.

A watcher makes known which queues are watched, again and again, and processes that change jobs
remember that for half a minute. Both travel as wake-ups of queues with names that no queue can
have. So no store keeps anything of watchers, and no call of a worker asks for them. What is lost
costs the time until the watcher looks by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

from forge_jobs.model.queues import Wake
from forge_jobs.storage.wakeups import CHANGED, QUEUE, WATCHED, WakeUps, elapsed

MADE_KNOWN_EVERY_S = 10.0
APART_S = 0.05
"""A process sends wake-ups for the changes of one queue at most so often."""

_Wait = Callable[[frozenset[str], timedelta, object | None], Awaitable[Wake]]


class Changes:
    """Changes of jobs in one bundle: what changes here, and what is watched here.

    :param wakeups: those of the store in this process
    :param wait: waits for wake-ups of queues, as ``JobStore.wait_for_work``
    :param send: sends topics to other processes, without waiting
    """

    def __init__(
        self,
        wakeups: Callable[[], WakeUps],
        wait: _Wait,
        send: Callable[[Sequence[str]], None],
    ) -> None:
        self._find = wakeups
        self._found: WakeUps | None = None
        self._wait = wait
        self._send = send
        self._made_known: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def _wakeups(self) -> WakeUps:
        # Known once the store is open.
        if self._found is None:
            self._found = self._find()
        return self._found

    def announce(self, queues: Iterable[str] | None) -> None:
        """See ``JobStore.announce_changes``."""
        wakeups = self._wakeups
        if not wakeups.watched:
            return
        now = elapsed()
        for queue in tuple(wakeups.watched) if queues is None else queues:
            if wakeups.is_watched(queue, now) and queue not in self._timers:
                left = self._next.get(queue, 0.0) - now
                if left <= 0:
                    self._tell(queue)
                else:
                    # The last of many changes is sent too.
                    loop = asyncio.get_running_loop()
                    self._timers[queue] = loop.call_later(left, self._tell, queue)

    async def wait(
        self, queues: frozenset[str], at_most: timedelta, waiter: object
    ) -> frozenset[str]:
        """See ``JobStore.wait_for_changes``."""
        names = {CHANGED.removeprefix(QUEUE) + queue: queue for queue in queues}
        end = elapsed() + at_most.total_seconds()
        while True:
            self._make_known(queues)
            left = max(0.0, end - elapsed())
            part = min(left, MADE_KNOWN_EVERY_S)
            wake = await self._wait(frozenset(names), timedelta(seconds=part), waiter)
            changed = frozenset(names[name] for name in wake.queues if name in names)
            if changed or part == left:
                return changed

    def _make_known(self, queues: Iterable[str]) -> None:
        now = elapsed()
        self._made_known = {queue: self._made_known.get(queue, 0.0) for queue in queues}
        if due := [queue for queue, until in self._made_known.items() if until <= now]:
            self._made_known.update(dict.fromkeys(due, now + MADE_KNOWN_EVERY_S))
            topics = [WATCHED + queue for queue in due]
            self._wakeups.wake(topics)
            self._send(topics)

    def _tell(self, queue: str) -> None:
        self._timers.pop(queue, None)
        if len(self._next) > 1_000:
            self._next.clear()
        self._next[queue] = elapsed() + APART_S
        topics = [CHANGED + queue]
        self._wakeups.wake(topics)
        self._send(topics)
