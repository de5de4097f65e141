"""Batching without delay: calls of a store that share one round trip.

A lane has at most one call in flight. Items that arrive meanwhile form the next batch. Idle, a
batch is one item and waits for nothing. Under load batches grow by themselves.

The lane's own task makes the call, which is never cancelled half way: a caller that is cancelled
only stops waiting, and the caller's items are still sent.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import CONCERNS_ALL, Locked, StorageRefused, Unavailable
from forge_jobs.home_loop import HomeLoop
from forge_jobs.outages import Pauses

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_ITEMS = 1_000
MAX_BYTES = 4 * 1024 * 1024

_PAUSES = Pauses(0.05, 1.0)

_REFUSED_ALONE = 2
"""So many items in a row, each refused alone: then the store refuses all of them."""

_AGAIN = (Locked, StorageRefused)
"""Errors after which :meth:`Lane.submit` sends again later, while others have their calls."""


class _Entry(Generic[Item, Result]):
    """A caller's items. ``taken`` of them have gone into a batch, ``left`` have no end yet."""

    __slots__ = ("error", "future", "items", "left", "results", "taken")

    def __init__(self, items: Sequence[Item], future: "asyncio.Future[list[Result]]") -> None:
        self.items = items
        self.future = future
        self.taken = 0
        self.left = len(items)
        self.results: list[Any] = [None] * len(items)
        self.error: BaseException | None = None


class _Slice(Generic[Item, Result]):
    """Items ``start`` to ``stop`` of an entry, as one batch holds them."""

    __slots__ = ("entry", "start", "stop")

    def __init__(self, entry: _Entry[Item, Result], start: int, stop: int) -> None:
        self.entry = entry
        self.start = start
        self.stop = stop


_Batch = list[_Slice[Item, Result]]


class Lane(Generic[Item, Result]):
    """Items of many callers, sent by one call at a time, in the order they came.

    A call is all or nothing, or independent per item. The call answers one result per item, in
    order. When a call fails, other than by :class:`Unavailable`, the batch is halved until the item
    at fault stands alone, so that no caller sees another's error: at most ``2 x ceil(log2 n) + 1``
    calls for one such item among ``n``. :class:`SchemaMismatch` and :class:`StorageClosed` concern
    all items alike, so there is no search. :class:`Unavailable` is repeated with growing, jittered
    pauses for ``repeat_for``, then raised to all callers of the batch.

    :class:`Locked` and :class:`StorageRefused` are not repeated at once, because other callers
    would have to wait. The lane searches for the item, and :meth:`submit` sends that item again
    later, for ``repeat_for`` too. A store that takes none of the first items alone refuses all of
    them: the search ends, and the next call is made after a growing pause.

    Belongs to the event loop of the first use.

    :param max_items: of one call, counted by ``count_of``. An item that exceeds a limit alone is
        sent alone
    :param max_bytes: of one call, measured by ``size_of``. Unlimited without ``size_of``
    :param count_of: how much an item counts, 1 when left out
    :param sort_key: order of the items within a call. The order they came in when left out
    :param repeat_for: how long a call is repeated, from the first failure
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
        size_of: Callable[[Item], int] | None = None,
        count_of: Callable[[Item], int] | None = None,
        sort_key: Callable[[Item], Any] | None = None,
        repeat_for: timedelta = timedelta(seconds=30),
        clock: Clock | None = None,
    ) -> None:
        self._call = call
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._count_of = count_of
        self._sort_key = sort_key
        self._repeat_for = repeat_for.total_seconds()
        self._clock = clock or SystemClock()
        self._waiting: deque[_Entry[Item, Result]] = deque()
        self._home = HomeLoop("what sends calls together")
        self._task: asyncio.Task[None] | None = None
        self._in_flight = 0
        self._accepted = 0
        self._settled = 0
        self._sent_again: set[asyncio.Future[None]] = set()
        self._refusals = 0
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def in_flight(self) -> int:
        """Items of the call that is under way. 0 between calls."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Items not yet handed to a call."""
        return sum(entry.left - entry.taken for entry in self._waiting)

    @property
    def callers(self) -> int:
        """How many have submitted something that has not ended."""
        return self._accepted - self._settled

    async def submit(self, item: Item) -> Result:
        """Send an item, and return the result or raise the error of that item."""
        try:
            [result] = await self._accept((item,))
        except _AGAIN as error:
            return await self._submit_again(item, error)
        return result

    async def _submit_again(self, item: Item, error: Unavailable) -> Result:
        """Send the item now and then for ``repeat_for``. Other callers send in between."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent_again.add(over)
        deadline, failures = self._clock.elapsed() + self._repeat_for, 0
        try:
            while (left := deadline - self._clock.elapsed()) > 0:
                failures += 1
                await _wait(min(_PAUSES.after(failures), left))
                try:
                    [result] = await self._accept((item,))
                except _AGAIN as again:
                    error = again
                else:
                    return result
            raise error
        finally:
            self._sent_again.discard(over)
            over.set_result(None)

    async def submit_many(self, items: Sequence[Item]) -> list[Result]:
        """Send several items, and return the results in their order. They may be spread over calls.

        Raises the error of the first item that has one, once all items have ended. The others have
        been applied nevertheless.
        """
        if not items:
            return []
        return await self._accept(items)

    async def flush(self) -> None:
        """Wait until everything submitted so far has ended, well or not."""
        if self._settled < self._accepted:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushes.append((self._accepted, done))
            await done
        if self._sent_again:
            await asyncio.wait(set(self._sent_again))

    def _accept(self, items: Sequence[Item]) -> "asyncio.Future[list[Result]]":
        loop = self._home.here()
        entry: _Entry[Item, Result] = _Entry(items, loop.create_future())
        self._accepted += 1
        self._waiting.append(entry)
        if self._task is None:
            # With the first caller's context in the task, traces of all callers would hang below
            # that caller.
            self._task = loop.create_task(self._run(), context=contextvars.Context())
        return entry.future

    async def _run(self) -> None:
        batch: _Batch[Item, Result] = []
        try:
            while self._waiting:
                batch = self._next_batch()
                await self._send(batch)
                # Only now: within a batch a later item may end before an earlier one.
                self._finish_flushes()
        except BaseException as error:
            # Only the end of the event loop comes here: no caller may be left waiting.
            for entry in (*(part.entry for part in batch), *self._waiting):
                if not entry.future.done():
                    entry.future.set_exception(
                        Unavailable("the event loop ended while a call was under way")
                    )
            self._waiting.clear()
            self._settled = self._accepted
            if not isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._task = None
            self._in_flight = 0
            self._finish_flushes()

    def _next_batch(self) -> _Batch[Item, Result]:
        batch: _Batch[Item, Result] = []
        items, size = 0, 0
        while self._waiting:
            entry = self._waiting[0]
            start = stop = entry.taken
            for stop, item in enumerate(entry.items[start:], start):
                items += self._count_of(item) if self._count_of else 1
                size += self._size_of(item) if self._size_of else 0
                if (items > self._max_items or size > self._max_bytes) and (batch or stop > start):
                    break
            else:
                stop = len(entry.items)
            if stop > start:
                batch.append(_Slice(entry, start, stop))
                entry.taken = stop
            if stop < len(entry.items):
                break
            self._waiting.popleft()
        if self._sort_key is not None:
            batch = _sorted(batch, self._sort_key)
        return batch

    async def _send(self, batch: _Batch[Item, Result]) -> None:
        """Send a batch, in parts if need be, until all items of the batch have ended."""
        parts = [batch]
        refused_alone = 0
        while parts:
            part = parts.pop()
            items = _items(part)
            self._in_flight = len(items)
            try:
                results = await self._repeated(items)
            except Exception as error:
                self._in_flight = 0
                if len(items) > 1 and not _concerns_all(error):
                    first, second = _halves(part, len(items))
                    parts += (second, first)
                    continue
                self._settle_failed(part, error)
                if isinstance(error, StorageRefused):
                    refused_alone += 1
                    if refused_alone == _REFUSED_ALONE:
                        await self._refused(parts, error)
                        return
                continue
            self._in_flight = 0
            # The store takes items: an item that is refused from here on is itself at fault.
            refused_alone, self._refusals = _REFUSED_ALONE, 0
            if len(results) != len(items):
                count = f"{len(results)} results for {len(items)} items"
                self._settle_failed(part, RuntimeError(f"a lane's call answered {count}"))
            else:
                self._settle(part, results)

    async def _refused(self, parts: list[_Batch[Item, Result]], error: Exception) -> None:
        """End the rest of a batch of which the store takes nothing, and pause."""
        for part in parts:
            self._settle_failed(part, error)
        self._finish_flushes()
        self._refusals += 1
        await _wait(_PAUSES.after(self._refusals))

    async def _repeated(self, items: Sequence[Item]) -> Sequence[Result]:
        deadline, failures = None, 0
        while True:
            try:
                return await self._call(items)
            except _AGAIN:
                raise
            except Unavailable:
                now = self._clock.elapsed()
                deadline = now + self._repeat_for if deadline is None else deadline
                if now >= deadline:
                    raise
            failures += 1
            await _wait(min(_PAUSES.after(failures), max(deadline - now, 0.001)))

    def _settle(self, part: _Batch[Item, Result], results: Sequence[Result]) -> None:
        position = 0
        for piece in part:
            count = piece.stop - piece.start
            piece.entry.results[piece.start : piece.stop] = results[position : position + count]
            position += count
            self._end(piece.entry, count)

    def _settle_failed(self, part: _Batch[Item, Result], error: BaseException) -> None:
        for piece in part:
            # One exception object for several callers would grow a traceback for each of them.
            piece.entry.error = piece.entry.error or _copy(error, len(part) > 1)
            self._end(piece.entry, piece.stop - piece.start)

    def _end(self, entry: _Entry[Item, Result], count: int) -> None:
        entry.left -= count
        if entry.left:
            return
        self._settled += 1
        if not entry.future.done():
            if entry.error is None:
                entry.future.set_result(entry.results)
            else:
                entry.future.set_exception(entry.error)

    def _finish_flushes(self) -> None:
        if not self._flushes:
            return
        for wanted, done in self._flushes:
            if wanted <= self._settled and not done.done():
                done.set_result(None)
        self._flushes = [flush for flush in self._flushes if not flush[1].done()]


def _concerns_all(error: Exception) -> bool:
    return isinstance(error, CONCERNS_ALL) and not isinstance(error, _AGAIN)


def _items(part: _Batch[Item, Result]) -> Sequence[Item]:
    if len(part) == 1:
        [piece] = part
        if piece.stop - piece.start == len(piece.entry.items):
            return piece.entry.items
    return [item for piece in part for item in piece.entry.items[piece.start : piece.stop]]


def _single(part: _Batch[Item, Result]) -> _Batch[Item, Result]:
    """The same items in the same order, one per slice."""
    return [
        _Slice(piece.entry, index, index + 1)
        for piece in part
        for index in range(piece.start, piece.stop)
    ]


def _halves(
    part: _Batch[Item, Result], count: int
) -> tuple[_Batch[Item, Result], _Batch[Item, Result]]:
    singles = part if len(part) == count else _single(part)
    return singles[: count // 2], singles[count // 2 :]


def _sorted(part: _Batch[Item, Result], key: Callable[[Item], Any]) -> _Batch[Item, Result]:
    return sorted(_single(part), key=lambda piece: key(piece.entry.items[piece.start]))


def _copy(error: BaseException, shared: bool) -> BaseException:
    if not shared:
        return error
    try:
        copy = type(error)(*error.args)
    except Exception:
        return error
    copy.__cause__ = error
    return copy


async def _wait(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()
