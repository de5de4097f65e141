"""A storage that callers of any event loop may use: the calls run on the loop of the kit."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from forge_jobs.storage.protocols import ConfigStore, CronStore, JobStore, ProcStore, Storage
from forge_jobs.testing.kit.background import BackgroundLoop

_PROTOCOLS = (JobStore, ProcStore, ConfigStore, CronStore)
_ASYNC = frozenset(
    name
    for protocol in _PROTOCOLS
    for name, verb in inspect.getmembers(protocol, inspect.iscoroutinefunction)
    if not name.startswith("_")
)


def for_any_loop(storage: Storage, home: BackgroundLoop) -> Storage:
    """Return the bundle with calls that may come from any loop. The bundle belongs to ``home``.

    A call with ``connection=`` stays on the loop of the caller, as the connection does.
    """

    async def close() -> None:
        await _at_home(home, storage.aclose)

    # ``reopen`` stays: a bundle of the caller's own, for the loop that asks.
    found = storage.wrapped(lambda view: _View(view, home), close=close)
    asks, looks = storage.open_transactions, storage.unreadable
    found.open_transactions = None if asks is None else lambda: _at_home(home, asks)
    found.unreadable = None if looks is None else lambda: _at_home(home, looks)
    found.lacking = lambda: _at_home(home, storage.lacking)
    found.report = lambda: _at_home(home, storage.report)
    return found


async def _at_home(home: BackgroundLoop, call: Callable[[], Awaitable[Any]]) -> Any:
    if asyncio.get_running_loop() is home.loop:
        return await call()

    async def work() -> Any:
        return await call()

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), home.loop))


class _View:
    """A view of a store. Calls that only say something, and return nothing, are left behind."""

    def __init__(self, view: Any, home: BackgroundLoop) -> None:
        self._view = view
        self._home = home

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._view, name)
        if not callable(found):
            return found
        home = self._home
        if name not in _ASYNC:
            return lambda *given: home.loop.call_soon_threadsafe(found, *given)

        async def call(*given: Any, **named: Any) -> Any:
            if named.get("connection") is not None:
                return await found(*given, **named)
            return await _at_home(home, lambda: found(*given, **named))

        setattr(self, name, call)
        return call
