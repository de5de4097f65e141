"""Ends and releases that the store refuses while taking others: kept, and sent apart.

The pod goes on beating for the claims of these items, so that no pod revives the jobs. The items
are sent again after growing pauses, outside the loop of the queue, whose other ends and claims go
on. Items that wait for the lock of an open transaction are sent together. Items that the store has
refused are sent alone.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from forge_jobs.errors import CONCERNS_ALL, OF_VALUES, StorageClosed, StorageRefused
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.shared.failure_texts import by_reason
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

LOCKED = "an open transaction of another program holds a row that it needs"

_FIRST_PAUSE = 0.05
_LONGEST_LOCKED = 2.0
_WHILE_LOCKED = Pauses(_FIRST_PAUSE, _LONGEST_LOCKED)
_WHILE_REFUSED = Pauses(_FIRST_PAUSE, 30.0)
_IN_A_HURRY = Pauses(_FIRST_PAUSE, 0.25)
_WITH_ALL = Pauses(1.0, 1.0)
_SAID_AFTER = 1.0
"""Seconds after which a lock is logged."""

_TRIES_AT_LAST = 3
"""Refusals of an item after which a stop no longer waits for the item."""


class Way(Protocol):
    """The sort of an item: how to send the item, and what follows. See ``Outgoing``."""

    name: str

    def claim_of(self, item: Any) -> Claim: ...

    async def send(self, items: Sequence[Any]) -> Sequence[bool | None]: ...

    def ended(self, item: Any, applied: bool) -> None: ...

    def condemned(self, item: Any, error: Exception) -> Any | None: ...


class _Entry:
    __slots__ = ("because", "due", "failures", "item", "said", "since", "way")

    def __init__(self, way: Way, item: Any, because: str, now: float) -> None:
        self.way = way
        self.item = item
        self.because = because
        self.since = now
        self.failures = 0
        self.due = now
        self.said = False

    @property
    def is_locked(self) -> bool:
        return self.because == LOCKED

    @property
    def job_id(self) -> JobId:
        return self.way.claim_of(self.item).job_id


class SetAside:
    """The items of one queue that are set aside. :meth:`run` is a part of the pod."""

    def __init__(self, queue: str, services: PodServices) -> None:
        self._queue = queue
        self._services = services
        self.count = 0
        """The number of items."""
        self._entries: list[_Entry] = []
        self._news = Wakeup()
        self._hurrying = False
        self._closing = False
        self._gave_up = False

    @property
    def because(self) -> tuple[str, ...]:
        """A line for each reason why items are here, the longest waiting item first."""
        return by_reason(
            (f"{entry.way.name} of job {entry.job_id}", entry.because) for entry in self._entries
        )

    def claims(self) -> list[Claim]:
        """Return the claims of the items."""
        return [entry.way.claim_of(entry.item) for entry in self._entries]

    def take(self, way: Way, items: Iterable[Any], error: Exception | None) -> None:
        """Keep items, and send them again.

        :param error: why the store refuses the items. None: their rows are locked
        """
        because = LOCKED if error is None else reason_of(error)
        for item in items:
            entry = _Entry(way, item, because, self._services.clock.elapsed())
            self._entries.append(entry)
            self.count += 1
            self._put_off(entry)
            if error is not None:
                self._say(entry, error)
        self._news.wake()

    def hurry(self) -> None:
        """Send all items again now, and only with short pauses from here on."""
        self._hurrying = True
        for entry in self._entries:
            entry.failures = 0
        self._due_at_once(self._entries)

    def close(self) -> None:
        """End :meth:`run` when no item is left, or only items that the store will not take."""
        self._closing = True
        self._news.wake()

    def give_up(self) -> None:
        """End :meth:`run` after the call in flight."""
        self._gave_up = True
        self.close()

    async def run(self) -> None:
        """Send again what is due, until closed."""
        while not self._gave_up:
            if self._closing and not self._is_hopeful():
                return
            now = self._services.clock.elapsed()
            due = [entry for entry in self._entries if entry.due <= now]
            if not due:
                first = min((entry.due for entry in self._entries), default=None)
                await self._news.wait(None if first is None else timedelta(seconds=first - now))
                continue
            try:
                await self._send(due, now)
            except StorageClosed:
                raise
            except CONCERNS_ALL:
                # The loop of the queue logs the outage. A pause is enough here.
                for entry in due:
                    entry.due = now + _WITH_ALL.after(1, self._services.rng)

    async def _send(self, due: Sequence[_Entry], now: float) -> None:
        for way in dict.fromkeys(entry.way for entry in due if entry.is_locked):
            together = [
                entry
                for entry in self._entries
                if entry.way is way and entry.is_locked and entry.due <= now + _LONGEST_LOCKED / 2
            ]
            await self._send_together(way, together)
        for entry in due:
            if not entry.is_locked and not self._gave_up:
                await self._send_together(entry.way, [entry])

    async def _send_together(self, way: Way, entries: Sequence[_Entry]) -> None:
        try:
            answers = await way.send([entry.item for entry in entries])
        except Exception as error:
            if isinstance(error, CONCERNS_ALL) and not isinstance(error, StorageRefused):
                raise
            for entry in entries:
                self._refused(entry, error, alone=len(entries) == 1)
            return
        for entry, answer in zip(entries, answers, strict=True):
            if answer is None:
                self._still_locked(entry)
            else:
                self._over(entry)
                way.ended(entry.item, answer)

    def _refused(self, entry: _Entry, error: Exception, *, alone: bool) -> None:
        """Send each of several items alone from now on, because a single item may be at fault."""
        if alone and isinstance(error, OF_VALUES):
            entry.item = entry.way.condemned(entry.item, error)
            if entry.item is None:
                self._remove(entry)
            return
        entry.because = reason_of(error)
        if alone:
            self._say(entry, error)
        self._put_off(entry)

    def _still_locked(self, entry: _Entry) -> None:
        entry.because = LOCKED
        self._put_off(entry)
        waits = self._services.clock.elapsed() - entry.since
        if waits < _SAID_AFTER or any(each.said and each.is_locked for each in self._entries):
            return
        entry.said = True
        logger.warning(
            "queue %s: %s of job %s has waited for %.0f s, and others may: %s; it is kept and "
            "sent again",
            self._queue,
            entry.way.name,
            entry.job_id,
            waits,
            LOCKED,
            extra={"job_id": entry.job_id, "queue": self._queue},
        )

    def _say(self, entry: _Entry, error: Exception) -> None:
        if entry.said:
            return
        entry.said = True
        logger.error(
            "queue %s: the store takes others, but not %s of job %s: %s; it is kept and sent again",
            self._queue,
            entry.way.name,
            entry.job_id,
            reason_of(error),
            exc_info=None if isinstance(error, StorageRefused) else error,
            extra={"job_id": entry.job_id, "queue": self._queue},
        )

    def _remove(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self.count -= 1

    def _over(self, entry: _Entry) -> None:
        self._remove(entry)
        if entry.said:
            logger.info(
                "queue %s: %s of job %s is stored after all",
                self._queue,
                entry.way.name,
                entry.job_id,
                extra={"job_id": entry.job_id, "queue": self._queue},
            )
        # The cause is gone, most likely for all items with this reason.
        self._due_at_once(each for each in self._entries if each.because == entry.because)

    def _due_at_once(self, entries: Iterable[_Entry]) -> None:
        now = self._services.clock.elapsed()
        for entry in entries:
            entry.due = now
        self._news.wake()

    def _put_off(self, entry: _Entry) -> None:
        pauses = _WHILE_LOCKED if entry.is_locked else _WHILE_REFUSED
        if self._hurrying:
            pauses = _IN_A_HURRY
        entry.failures += 1
        pause = pauses.after(entry.failures, self._services.rng)
        entry.due = self._services.clock.elapsed() + pause

    def _is_hopeful(self) -> bool:
        """Return whether an item is left that the store may yet take."""
        return any(entry.is_locked or entry.failures < _TRIES_AT_LAST for entry in self._entries)


def reason_of(error: Exception) -> str:
    """Return the reason in words for people."""
    if isinstance(error, StorageRefused):
        return str(error)
    return f"{type(error).__qualname__}: {error}"
