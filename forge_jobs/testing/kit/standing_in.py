"""Handlers that must not run, and dependencies that other factories make, for one test."""

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from forge_jobs.errors import ConfigError, InvalidInput, a_type
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.injection.markers import name_of
from forge_jobs.handlers.injection.plan import key_of, lifespan_plan
from forge_jobs.handlers.injection.running import injected
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.runtime.executors.runner import registry_place


class FakeHandler:
    """Stands for a handler that must not run. Made by ``Kit.fake``.

    Settable at any time: :attr:`returns` and :attr:`raises`.

    :ivar calls: the arguments of each run, by name, without the context and what is injected
    :ivar returns: the result of a run
    :ivar raises: an exception or an outcome that a run ends with instead. None: none
    """

    def __init__(self, returns: object, raises: BaseException | type[BaseException] | None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.returns = returns
        self.raises = raises

    def __repr__(self) -> str:
        return f"FakeHandler(calls={self.calls!r})"

    def of(self, handler: Handler[..., Any]) -> Handler[..., Any]:
        """Return the handler with this function. Hooks stay, middleware does not run."""

        async def note(**arguments: Any) -> Any:
            self.calls.append(arguments)
            if self.raises is not None:
                raise self.raises
            return self.returns

        fake = copy.copy(handler)
        fake.function = note
        fake.is_async, fake.in_process, fake.run = True, False, None
        fake.context_parameter = None
        fake.needs_thread = handler.hooks is not None and handler.hooks.need_thread
        return fake


class _Instead(Mapping[Hashable, Callable[..., Any]]):
    """Factories by the key of the factory that each stands for, and which of them are used."""

    def __init__(self) -> None:
        self._factories: dict[Hashable, Callable[..., Any]] = {}
        self.met: set[Hashable] = set()

    def put(self, key: Hashable, factory: Callable[..., Any]) -> None:
        self._factories[key] = factory

    def __getitem__(self, key: Hashable) -> Callable[..., Any]:
        found = self._factories[key]
        self.met.add(key)
        return found

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)


class StandIns:
    """The fakes and the overrides of one test."""

    def __init__(self) -> None:
        self._fakes: dict[str, FakeHandler] = {}
        self._instead = _Instead()

    def __bool__(self) -> bool:
        return bool(self._fakes or self._instead)

    def fake(self, kind: str, fake: FakeHandler) -> None:
        """Let ``fake`` stand for the handler of a kind."""
        self._fakes[kind] = fake

    def override(self, factory: object, replacement: object) -> Hashable:
        """Let a factory stand for another, and return the key of the other.

        :raises InvalidInput: one of them cannot be called
        """
        for name, value in (("factory", factory), ("replacement", replacement)):
            if not callable(value):
                raise InvalidInput(
                    name, f"is {a_type(value)}", "give a function or a class, as to Depends"
                )
        assert callable(factory)
        assert callable(replacement)
        key: Hashable = key_of(factory)
        self._instead.put(key, replacement)
        return key

    def of(self, handler: Handler[..., Any]) -> Handler[..., Any]:
        """Return what stands for a handler, the handler itself if nothing does.

        :raises RegistrationError: a replacement needs what it cannot get
        """
        fake = self._fakes.get(handler.kind)
        if fake is not None:
            return fake.of(handler)
        if not self._instead or (handler.run is None and handler.hooks is None):
            return handler
        other = copy.copy(handler)
        if handler.run is not None:
            plan = handler.signature.plan(instead=self._instead)
            assert plan is not None, "the handler has parameters that are injected"
            other.run = injected(plan, handler.function)
            other.needs_thread = handler.needs_thread or plan.needs_thread
        if handler.hooks is not None:
            other.hooks = handler.hooks.standing_in(self._instead)
            other.needs_thread = other.needs_thread or other.hooks.need_thread
        return other

    def registry(self, handlers: HandlerRegistry) -> HandlerRegistry:
        """Return a registry of what stands for the handlers."""
        if not self:
            return handlers
        other = _with_handlers(handlers, {id(each): self.of(each) for each in handlers})
        if any(handler.in_process for handler in other):
            # Other processes import the program as it is.
            with suppress(ConfigError):
                other.loaded_from = registry_place(handlers)
        other._lifespans = tuple(
            lifespan_plan(plan.key, self._instead) if callable(plan.key) else plan
            for plan in handlers.lifespans()
        )
        return other

    def check_met(self, key: Hashable, factory: Callable[..., Any]) -> None:
        """Refuse to stand for a factory that nothing needs.

        :raises InvalidInput: the text names the factory
        """
        if key not in self._instead.met:
            raise InvalidInput(
                "factory",
                f"{name_of(factory)} is needed by no handler and by no lifespan of the registry",
                "give the very function that is in Depends(...) or Shared(...)",
            )


def in_this_process(handlers: HandlerRegistry) -> HandlerRegistry:
    """Return the registry with handlers of other processes run here, where tests can look on."""
    if not any(handler.in_process for handler in handlers):
        return handlers
    here: dict[int, Handler[..., Any]] = {}
    for handler in handlers:
        here[id(handler)] = handler
        if handler.in_process:
            here[id(handler)] = other = copy.copy(handler)
            other.in_process = False
    return _with_handlers(handlers, here)


def _with_handlers(
    handlers: HandlerRegistry, others: Mapping[int, Handler[..., Any]]
) -> HandlerRegistry:
    other = copy.copy(handlers)
    other._by_kind = {kind: others[id(each)] for kind, each in handlers._by_kind.items()}
    return other
