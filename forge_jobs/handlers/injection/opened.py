"""Values that a scope has made, and their clean-up in reverse order."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from forge_jobs.handlers.injection.factories import Factory

T = TypeVar("T")


class InThread(Protocol):
    """Runs a call in a thread of the scope."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


Failed = Callable[[str, BaseException, BaseException | None], BaseException | None]


class Opened:
    """The context managers that are entered and must be left.

    :param in_thread: for factories that are no coroutines: they may block
    :param failed: called with the name of a factory, the exception that the clean-up raised, and
        the exception that the clean-up was for. Returns the one that stands
    """

    def __init__(
        self,
        in_thread: InThread,
        failed: Failed,
    ) -> None:
        self._in_thread = in_thread
        self._failed = failed
        self._entered: list[tuple[str, Any, bool, Failed]] = []

    async def make(
        self,
        name: str,
        factory: Factory,
        arguments: dict[str, Any],
        failed: Failed | None = None,
    ) -> Any:
        """Make a value, and remember what has to be left.

        :param name: of the factory, for people
        :param failed: called in place of that of the scope
        """
        if not factory.is_async:
            made, value = await self._in_thread(partial(_made, factory, arguments))
        else:
            made = factory.call(**arguments)
            if factory.is_awaited:
                made = await made
            value = await made.__aenter__() if factory.is_entered else made
        if factory.is_entered:
            self._entered.append((name, made, factory.is_async, failed or self._failed))
        return value

    async def close(self, error: BaseException | None) -> BaseException | None:
        """Leave everything, the newest first. No exception keeps the others from being left.

        :param error: thrown into each context manager. None: all went well
        :returns: the exception that stands in the end. A context manager cannot suppress ``error``
        """
        while self._entered:
            name, manager, is_async, failed = self._entered.pop()
            thrown = (
                (None, None, None) if error is None else (type(error), error, error.__traceback__)
            )
            try:
                if is_async:
                    await manager.__aexit__(*thrown)
                else:
                    await self._in_thread(partial(manager.__exit__, *thrown))
            except BaseException as raised:  # the clean-up is the program's code
                if raised is not error:
                    raised.__context__ = raised.__context__ or error
                    error = failed(name, raised, error)
        return error


def _made(factory: Factory, arguments: dict[str, Any]) -> tuple[Any, Any]:
    made = factory.call(**arguments)
    return made, made.__enter__() if factory.is_entered else made
