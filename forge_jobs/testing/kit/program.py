"""The registry of the program under test, and what stands in the place of its parts."""

from collections.abc import Callable
from typing import Any

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry, check_registry
from forge_jobs.testing.kit.standing_in import FakeHandler, StandIns


class ProgramUnderTest:
    """A registry with fakes and overrides, for one test.

    :param handlers: the registry, or a function that returns the registry when first needed
    """

    def __init__(self, handlers: HandlerRegistry | Callable[[], HandlerRegistry]) -> None:
        self._handlers = handlers
        self._stand_ins = StandIns()

    @property
    def handlers(self) -> HandlerRegistry:
        """The registry of the program under test, with fakes and overrides in their places."""
        return self._stand_ins.registry(self._registry())

    def _registry(self) -> HandlerRegistry:
        if callable(self._handlers):
            self._handlers = check_registry(self._handlers())
        return self._handlers

    def fake(
        self,
        handler: Handler[..., Any] | str,
        /,
        *,
        returns: object = None,
        raises: BaseException | type[BaseException] | None = None,
    ) -> FakeHandler:
        """Let a fake stand for a handler that must not run, until the test ends.

        Holds for :meth:`drain` and :meth:`run_inline`, and for pods of the test that are given
        :attr:`handlers`. The payload is decoded as ever, and retries and hooks are those of the
        handler. Nothing is injected.

        :param handler: a handler, or the name of a kind
        :param returns: the result of each run
        :param raises: what each run raises instead, also an outcome such as ``Snoozed(60)``
        :returns: the fake, whose ``calls`` has the arguments of each run
        :raises InvalidInput: the registry has no such kind
        """
        kind = handler.kind if isinstance(handler, Handler) else handler
        known = self._registry().get(kind)
        if known is None:
            raise InvalidInput(
                "handler",
                f"is {kind!r}, which the registry does not know",
                "give a handler of the registry, or the name of its kind",
            )
        fake = FakeHandler(returns, raises)
        self._stand_ins.fake(known.kind, fake)
        return fake

    def override(self, factory: Callable[..., Any], replacement: Callable[..., Any], /) -> None:
        """Let another factory make what ``Depends(factory)`` or ``Shared(factory)`` injects.

        Until the test ends, in :meth:`drain` and :meth:`run_inline`, and in pods of the test that
        are given :attr:`handlers`. Lifespans and what other factories need count too. The processes
        of a pod import the program as it is, so ``executor="process"`` there has no overrides.

        :param replacement: anything that ``Depends`` takes, with parameters that are injected and
            with a clean-up of its own
        :raises InvalidInput: nothing in the registry needs ``factory``, or one of the two cannot be
            called
        :raises RegistrationError: the replacement needs what it cannot get
        """
        key = self._stand_ins.override(factory, replacement)
        self._stand_ins.registry(self._registry())
        self._stand_ins.check_met(key, factory)
