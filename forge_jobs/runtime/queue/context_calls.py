"""Calls of a JobContext that must be awaited, and the error for calls that were not."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class NeverAwaited(Exception):
    """A handler has ended without awaiting a call of the context."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        calls = ", ".join(f"ctx.{name}(...)" for name in names)
        super().__init__(
            f"the handler ended without awaiting {calls}, which therefore did nothing: write "
            f"`await ctx.{names[0]}(...)`. A retry would repeat the rest of the handler and forget "
            "the call again, so the job is dead; requeue it once the handler is mended"
        )


class LoopThread:
    """An event loop and the loop's thread. Must be made on the loop itself."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread_id = threading.get_ident()

    def is_here(self) -> bool:
        """Return whether the caller is on the loop's thread."""
        return threading.get_ident() == self.thread_id

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and block the calling thread until ``work`` has ended."""
        if self.is_here():
            work.close()
            raise RuntimeError(
                "ctx.sync blocks its thread and would block the event loop here: "
                "in an async def handler, await the methods of ctx itself"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


class ContextCalls:
    """The calls of one context that no code has awaited yet."""

    def __init__(self, home: LoopThread) -> None:
        self._home = home
        self._open: dict[_Call[Any], None] = {}

    def call(self, name: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> "_Call[T]":
        """Return a coroutine for the caller to await.

        :param name: of the method, as written behind ``ctx.``
        :raises RuntimeError: the caller is not on the event loop and cannot await anything
        """
        if not self._home.is_here():
            raise RuntimeError(
                f"ctx.{name}(...) must be awaited on the event loop and does nothing in another "
                f"thread: in a def handler call ctx.sync.{name}(...)"
            )
        call = _Call(name, begin, self._open)
        self._open[call] = None
        return call

    def unawaited(self) -> tuple[str, ...]:
        """Return the names of the calls that are not awaited yet, each name once."""
        return tuple(dict.fromkeys([call.name for call in self._open])) if self._open else ()


class _Call(Coroutine[Any, Any, T], Generic[T]):
    """A coroutine that counts as forgotten until the first step."""

    __slots__ = ("_begin", "_open", "_work", "name")

    def __init__(
        self,
        name: str,
        begin: Callable[[], Coroutine[Any, Any, T]],
        open_: "dict[_Call[Any], None]",
    ) -> None:
        self.name = name
        self._begin = begin
        self._open = open_
        self._work: Coroutine[Any, Any, T] | None = None

    def _begun(self) -> Coroutine[Any, Any, T]:
        if self._work is None:
            self._open.pop(self, None)
            self._work = self._begin()
        return self._work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        if traceback is not None and isinstance(value, BaseException):
            value = value.with_traceback(traceback)
        return self._begun().throw(value if isinstance(value, BaseException) else kind)

    def close(self) -> None:
        """Close the call. A call that is closed on purpose does not count as forgotten."""
        self._open.pop(self, None)
        if self._work is not None:
            self._work.close()
