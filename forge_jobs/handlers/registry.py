"""Registries: which function runs which kind. Objects, not globals."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from forge_jobs.errors import ConfigError, InvalidInput, RegistrationError, a_type
from forge_jobs.handlers.around.enqueues import enqueue_middleware_of
from forge_jobs.handlers.around.hooks import hooks_of
from forge_jobs.handlers.handler import Handler, Registering
from forge_jobs.handlers.injection.markers import middleware_of
from forge_jobs.handlers.injection.plan import SharedPlan, lifespan_plan
from forge_jobs.handlers.limits.concurrency import Declared, declared_limits
from forge_jobs.handlers.limits.rates import declared_rates
from forge_jobs.handlers.option_checks import (
    check_aliases,
    checked_options,
    named,
    with_known_fields,
)
from forge_jobs.handlers.options import (
    CronOptions,
    GivenHooks,
    HandlerOptions,
    JobOptions,
    check_option_names,
)
from forge_jobs.handlers.recurring import Recurring
from forge_jobs.model.queues import RateLimit
from forge_jobs.policy.cron import parse_cron
from forge_jobs.privacy.encryption import Encryption, check_encryption

P = ParamSpec("P")
R = TypeVar("R")


class HandlerRegistry:
    """Handlers by kind. Fill the registry while modules load. Do not change the registry once a
    runtime has started.

    :param encryption: encrypts payloads and results of the handlers decorated here
    :param lifespan: what each worker process does before the first job and after the last: a
        function that yields once, as in FastAPI. ``ctx.state`` has the mapping that the function
        yields. Parameters may be ``Shared`` or a ``JobClient``
    :param middleware: around each run of each handler decorated here, the first outermost:
        functions that yield once, with parameters that are injected. See :meth:`job`
    :param enqueue_middleware: around each enqueue of these handlers, and of kinds that the registry
        of the client does not know, the first outermost. See :meth:`job`
    :param on_error: hooks of each handler decorated here, before the handler's own, as
        ``on_retry``, ``on_dead`` and ``on_done``. See :meth:`job`
    :raises RegistrationError: ``lifespan`` is no context manager, or needs what it cannot get
    """

    def __init__(
        self,
        *,
        encryption: Encryption | None = None,
        lifespan: Callable[..., Any] | None = None,
        middleware: Iterable[Callable[..., Any]] = (),
        enqueue_middleware: Iterable[Callable[..., Any]] = (),
        on_error: GivenHooks = (),
        on_retry: GivenHooks = (),
        on_dead: GivenHooks = (),
        on_done: GivenHooks = (),
    ) -> None:
        self.encryption = check_encryption(encryption)
        self._middleware = middleware_of(middleware, "HandlerRegistry")
        self._hooks = hooks_of(
            "HandlerRegistry",
            on_error=on_error,
            on_retry=on_retry,
            on_dead=on_dead,
            on_done=on_done,
        )
        self.options_elsewhere = HandlerOptions(
            enqueue_middleware=enqueue_middleware_of(enqueue_middleware, "HandlerRegistry")
        )
        """Of requests whose kind is not in the registry."""
        self.has_enqueue_middleware = bool(self.options_elsewhere.enqueue_middleware)
        """False: an enqueue need not look for the middleware of the handler."""
        self._lifespans: tuple[SharedPlan, ...] = (
            () if lifespan is None else (lifespan_plan(lifespan),)
        )
        self._by_kind: dict[str, Handler[..., Any]] = {}
        self._recurring: dict[str, Recurring] = {}
        self.loaded_from = ""
        """The place from which :func:`load_registry` loaded the registry, "" before."""

    def job(self, kind: str, **options: Unpack[JobOptions]) -> Registering:
        """Decorate a function as the handler of ``kind``.

        :param options: the defaults of its jobs, see :class:`JobOptions`
        :raises RegistrationError: at once for wrong options, when decorating for a function
            that cannot be a handler or a kind that belongs to another function
        """
        if callable(kind):
            name = getattr(kind, "__name__", "handler")
            raise RegistrationError(
                f"{name}: the kind is missing; write @handlers.job({name!r}) above the function"
            )
        named(kind)
        try:
            also = check_aliases(options.get("aliases", ()))
            enqueue_middleware = (
                *self.options_elsewhere.enqueue_middleware,
                *enqueue_middleware_of(options.get("enqueue_middleware", ()), kind),
            )
            checked = checked_options(options, self.encryption, enqueue_middleware)
        except InvalidInput as error:
            raise RegistrationError(f"{kind}: {error}") from None
        around = (*self._middleware, *middleware_of(options.get("middleware", ()), kind))
        hooks = self._hooks + hooks_of(
            kind,
            on_error=options.get("on_error", ()),
            on_retry=options.get("on_retry", ()),
            on_dead=options.get("on_dead", ()),
            on_done=options.get("on_done", ()),
        )

        def decorate(function: Callable[..., Any]) -> Handler[..., Any]:
            plain = function.function if isinstance(function, Handler) else function
            handler: Handler[..., Any] = Handler(plain, kind, also, checked, around, hooks=hooks)
            if handler.is_async and checked.executor == "thread":
                raise RegistrationError(
                    f"{handler.name}: executor='thread' is for plain functions; an async def runs "
                    "on the event loop (leave executor out), or in a process"
                )
            return self.add(with_known_fields(handler))

        return cast("Registering", decorate)

    def register(
        self, function: Callable[..., R], kind: str, **options: Unpack[JobOptions]
    ) -> Handler[..., R]:
        """The plain form of :meth:`job`, for functions defined elsewhere. Same options."""
        return self.job(kind, **options)(function)

    def cron(
        self,
        expression: str,
        *,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CronOptions],
    ) -> Callable[[Handler[P, R]], Handler[P, R]]:
        """Decorate a handler to run by the clock, above :meth:`job`::

            @handlers.cron("30 2 * * *", timezone="Europe/Berlin")
            @handlers.job("report.daily")
            def build_report() -> None: ...

        The schedule is declared when a runtime with this registry starts. What an operator has
        changed in the store stays.

        :param expression: five cron fields, six with seconds last, ``@daily``, ``@every 90s``
        :param name: of the schedule. The handler's kind when left out
        :param arguments: of the handler
        :param options: timezone, jitter, catch_up, window, overlap. See ``schedule``
        :raises RegistrationError: what is decorated is no handler, or the name is taken
        :raises InvalidInput: the expression or the time zone is wrong, or there is no such option
        """
        check_option_names(options, CronOptions.__annotations__, "cron")
        parse_cron(expression, str(options.get("timezone", "UTC")))

        def decorate(handler: Handler[P, R]) -> Handler[P, R]:
            if not isinstance(handler, Handler):
                raise RegistrationError("cron decorates a handler: put it above @handlers.job(...)")
            self._schedule(
                Recurring(
                    name=handler.kind if name is None else name,
                    handler=handler,
                    expression=expression,
                    arguments=dict(arguments or {}),
                    options={**options},
                )
            )
            return handler

        return decorate

    def recurring(self) -> Iterator[Recurring]:
        """The schedules that were declared with :meth:`cron`, in that order."""
        return iter(tuple(self._recurring.values()))

    def _schedule(self, recurring: Recurring) -> None:
        holder = self._recurring.get(recurring.name)
        if holder is not None and not holder.handler.same_function(recurring.handler):
            raise RegistrationError(
                f"schedule {recurring.name!r} belongs to {holder.handler!r} already; give it a name"
            )
        self._recurring[recurring.name] = recurring

    def add(self, handler: Handler[P, R]) -> Handler[P, R]:
        """Take a handler under the kind and the aliases.

        The same function again replaces itself: a module that is loaded twice is no conflict.

        :raises RegistrationError: a kind belongs to another function. Nothing is taken
        """
        if inspect.isgeneratorfunction(handler.function) or inspect.isasyncgenfunction(
            handler.function
        ):
            raise RegistrationError(f"{handler.name}: yields; a handler returns once")
        kinds = (handler.kind, *handler.aliases)
        for kind in kinds:
            named(kind)
            holder = self._by_kind.get(kind)
            if holder is not None and not holder.same_function(handler):
                raise RegistrationError(
                    f"kind {kind!r} belongs to {holder!r} already;"
                    f" give {handler!r} another kind, or remove one of them"
                )
        self._by_kind.update(dict.fromkeys(kinds, handler))
        if handler.options.enqueue_middleware:
            self.has_enqueue_middleware = True
        return handler

    def include(self, other: "HandlerRegistry") -> None:
        """Take every handler, schedule and lifespan of another registry, or none.

        :raises RegistrationError: a kind belongs to another function here
        """
        check_registry(other)
        merged = HandlerRegistry()
        merged._by_kind = dict(self._by_kind)
        for handler in other:
            merged.add(handler)
        merged._recurring = dict(self._recurring)
        for recurring in other.recurring():
            merged._schedule(recurring)
        self._by_kind, self._recurring = merged._by_kind, merged._recurring
        if merged.has_enqueue_middleware:
            self.has_enqueue_middleware = True
        known = {plan.key for plan in self._lifespans}
        self._lifespans += tuple(plan for plan in other.lifespans() if plan.key not in known)

    def lifespans(self) -> tuple[SharedPlan, ...]:
        """Return the lifespans of this registry and of those that are included, in that order."""
        return self._lifespans

    def get(self, kind: str) -> Handler[..., Any] | None:
        """The handler of a kind or alias."""
        return self._by_kind.get(kind)

    def kinds(self) -> frozenset[str]:
        """All kinds of the registry, aliases included."""
        return frozenset(self._by_kind)

    def rates(self) -> dict[str, RateLimit]:
        """Return the rate limits that handlers declare, by name.

        :raises RegistrationError: two handlers declare one name in different sizes
        """
        try:
            return declared_rates((each.kind, each.rate) for each in self)
        except InvalidInput as error:
            raise RegistrationError(str(error)) from None

    def limits(self) -> Declared:
        """Return how many jobs of a key run at once, and the shares, as handlers declare them.

        :raises RegistrationError: two handlers declare one name with different numbers
        """
        try:
            return declared_limits((each.kind, each.options.concurrency) for each in self)
        except InvalidInput as error:
            raise RegistrationError(str(error)) from None

    def __iter__(self) -> Iterator[Handler[..., Any]]:
        """Iterate over the handlers in the order of registration."""
        return iter({id(handler): handler for handler in self._by_kind.values()}.values())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, kind: object) -> bool:
        return kind in self._by_kind

    def __repr__(self) -> str:
        return f"HandlerRegistry({', '.join(sorted(self._by_kind))})"


def check_registry(value: object) -> HandlerRegistry:
    """``value``, held to be a registry.

    :raises InvalidInput: says what the value is, and what to give
    """
    if isinstance(value, HandlerRegistry):
        return value
    raise InvalidInput(
        "handlers",
        f"is {a_type(value)}",
        "give the HandlerRegistry whose job(...) decorates the functions",
    )


def load_registry(target: str) -> HandlerRegistry:
    """The registry at ``package.module:attribute``.

    Errors raised by the module itself pass through unchanged.

    :raises ConfigError: no such module or attribute, or the attribute is no registry
    """
    found = load_object(target)
    if not isinstance(found, HandlerRegistry):
        raise ConfigError(f"{target!r} is {a_type(found)}; name the HandlerRegistry of the module")
    found.loaded_from = target
    return found


def load_object(target: str) -> Any:
    """The object at ``package.module:attribute``. Errors as for :func:`load_registry`."""
    module_name, _, path = target.partition(":")
    if not module_name or not path or not all(module_name.split(".")):
        raise ConfigError(
            f"{target!r} is not of the form package.module:attribute; give for example "
            "myapp.jobs:handlers"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{target!r}: there is no module {error.name!r} to import") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{target!r}: {module_name} has no attribute {path!r}")
        found = getattr(found, name)
    return found
