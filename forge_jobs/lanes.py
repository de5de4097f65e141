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
from forge_jobs.home_loop import HomeLoop, next_turn
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
    """An item, and the future that its caller waits for."""

    __slots__ = ("future", "item")

    def __init__(self, item: Item, future: "asyncio.Future[Result]") -> None:
        self.item = item
        self.future = future


_Batch = list[_Entry[Item, Result]]


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
        self._accepted = 0
        self._settled = 0
        self._sent_again: set[asyncio.Future[None]] = set()
        self._refusals = 0
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def callers(self) -> int:
        """How many have submitted something that has not ended."""
        return self._accepted - self._settled

    async def submit(self, item: Item) -> Result:
        """Send an item, and return the result or raise the error of that item."""
        try:
            return await self.send(item)
        except _AGAIN as error:
            return await self._submit_again(item, error)

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
                    return await self.send(item)
                except _AGAIN as again:
                    error = again
            raise error
        finally:
            self._sent_again.discard(over)
            over.set_result(None)

    async def flush(self) -> None:
        """Wait until everything submitted so far has ended, well or not."""
        if self._settled < self._accepted:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushes.append((self._accepted, done))
            await done
        if self._sent_again:
            await asyncio.wait(set(self._sent_again))

    def send(self, item: Item) -> "asyncio.Future[Result]":
        """Send an item, in no further call than those of its batch. Return the future result.

        What :meth:`submit` would send again later is an error here.
        """
        loop = self._home.here()
        entry: _Entry[Item, Result] = _Entry(item, loop.create_future())
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
            if self._task is None:
                await next_turn()
            while self._waiting:
                batch = self._next_batch()
                await self._send(batch)
                # Only now: within a batch a later item may end before an earlier one.
                self._finish_flushes()
        except BaseException as error:
            # Only the end of the event loop comes here: no caller may be left waiting.
            for entry in (*batch, *self._waiting):
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
            self._finish_flushes()

    def _next_batch(self) -> _Batch[Item, Result]:
        batch: _Batch[Item, Result] = []
        items, size = 0, 0
        while self._waiting:
            item = self._waiting[0].item
            items += self._count_of(item) if self._count_of else 1
            size += self._size_of(item) if self._size_of else 0
            if batch and (items > self._max_items or size > self._max_bytes):
                break
            batch.append(self._waiting.popleft())
        if self._sort_key is not None:
            key = self._sort_key
            batch.sort(key=lambda entry: key(entry.item))
        return batch

    async def _send(self, batch: _Batch[Item, Result]) -> None:
        """Send a batch, in parts if need be, until all items of the batch have ended."""
        parts = [batch]
        refused_alone = 0
        while parts:
            part = parts.pop()
            items = [entry.item for entry in part]
            try:
                results = await self._repeated(items)
            except Exception as error:
                if len(part) > 1 and not _concerns_all(error):
                    middle = len(part) // 2
                    parts += (part[middle:], part[:middle])
                    continue
                self._settle_failed(part, error)
                if isinstance(error, StorageRefused):
                    refused_alone += 1
                    if refused_alone == _REFUSED_ALONE:
                        await self._refused(parts, error)
                        return
                continue
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
        self._settled += len(part)
        for entry, result in zip(part, results, strict=True):
            if not entry.future.done():
                entry.future.set_result(result)

    def _settle_failed(self, part: _Batch[Item, Result], error: Exception) -> None:
        self._settled += len(part)
        for entry in part:
            if not entry.future.done():
                # One exception object for several callers would grow a traceback for each of them.
                entry.future.set_exception(_copy(error) if len(part) > 1 else error)

    def _finish_flushes(self) -> None:
        if not self._flushes:
            return
        for wanted, done in self._flushes:
            if wanted <= self._settled and not done.done():
                done.set_result(None)
        self._flushes = [flush for flush in self._flushes if not flush[1].done()]


def _concerns_all(error: Exception) -> bool:
    return isinstance(error, CONCERNS_ALL) and not isinstance(error, _AGAIN)


def _copy(error: Exception) -> Exception:
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
