"""The plan by which the parameters of a handler are made, resolved once, at registration."""

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from forge_jobs.errors import RegistrationError, a_type
from forge_jobs.handlers.injection.annotations import annotations_of, metadata_of
from forge_jobs.handlers.injection.factories import Factory, parameters_of
from forge_jobs.handlers.injection.markers import (
    Dependency,
    check_default,
    marker_of,
    name_of,
)
from forge_jobs.handlers.injection.values import OF_THE_POD, names, value_of

_UNIONS = (Union, UnionType)


Factories = Mapping[Hashable, Callable[..., Any]]
"""Factories by the key of another, see :func:`key_of`."""


class Step:
    """A value of the plan.

    :ivar name: of the factory or class, for people
    :ivar value: the key of a value of the running job. None for a value that is made
    :ivar factory: makes the value. None for a value of the running job
    :ivar needs: parameter of the factory -> the number of the step that gives the argument
    :ivar shared: the value is made once per pod, by this. None for a value of one job
    :ivar field: the name of the handler's argument that the job brings. None for other values
    :ivar default: of that argument, for a job that brings none
    :ivar is_middleware: no parameter gets the value, and a clean-up that raises changes no end
    """

    def __init__(
        self,
        name: str,
        *,
        value: str | None = None,
        factory: Factory | None = None,
        needs: Mapping[str, int] | None = None,
        shared: "SharedPlan | None" = None,
        field: inspect.Parameter | None = None,
    ) -> None:
        self.name = name
        self.field = None if field is None else field.name
        self.default = None if field is None else field.default
        self.value = value
        self.factory = factory
        self.needs = tuple((needs or {}).items())
        self.shared = shared
        self.is_middleware = False


class SharedPlan:
    """How one value of the pod is made.

    :ivar key: the same for all plans of one factory
    :ivar name: of the factory, for people
    :ivar steps: the values that the factory needs, the value itself last
    """

    def __init__(self, key: Hashable, name: str, steps: tuple[Step, ...]) -> None:
        self.key = key
        self.name = name
        self.steps = steps


class InjectionPlan:
    """How the injected parameters of one handler are made.

    :ivar steps: in the order of making. Clean-up goes the other way
    :ivar parameters: parameter of the handler -> the number of the step that gives the argument
    :ivar needs_thread: a factory works in a thread
    :ivar needs_client: a value is the client of the pod
    """

    def __init__(self, steps: tuple[Step, ...], parameters: Mapping[str, int]) -> None:
        self.steps = steps
        self.parameters = tuple(parameters.items())
        self.needs_thread = any(
            step.factory is not None and not step.factory.is_async for step in steps
        )
        self.needs_client = any(map(_needs_client, steps))


def _needs_client(step: Step) -> bool:
    made = step.shared
    return step.value in OF_THE_POD or (made is not None and any(map(_needs_client, made.steps)))


def plan_of(
    parameters: Iterable[inspect.Parameter],
    annotations: Mapping[str, Any],
    name: str,
    middleware: Iterable[Dependency] = (),
    instead: Factories = MappingProxyType({}),
) -> InjectionPlan | None:
    """Return the plan for the parameters that are injected, None when there are none.

    :param name: of the handler, for errors
    :param middleware: made before all else, in this order, and cleaned up last
    :param instead: factory -> the factory that stands for that one, with needs of its own
    :raises RegistrationError: a dependency is wrong, or needs itself
    """
    fields: dict[str, inspect.Parameter] = {}
    sources: dict[str, tuple[Dependency, Any] | str] = {}
    for parameter in parameters:
        where = f"{name}: {parameter.name}"
        annotation = annotations.get(parameter.name)
        marker = marker_of(parameter.default, metadata_of(annotation), where)
        if marker is not None:
            sources[parameter.name] = (marker, annotation)
        elif (value := value_of(annotation)) is not None:
            sources[parameter.name] = value
        else:
            check_default(parameter.default, where)
            fields[parameter.name] = parameter.replace(annotation=annotation)
    resolver = _Resolver(name, fields, of_the_pod=False, instead=instead)
    for each in middleware:
        number = resolver.made(each, None, f"{name}: middleware")
        resolver.steps[number].is_middleware = True
    found = {
        parameter: resolver.given(source)
        if isinstance(source, str)
        else resolver.made(*source, f"{name}: {parameter}")
        for parameter, source in sources.items()
    }
    return InjectionPlan(tuple(resolver.steps), found) if resolver.steps else None


def lifespan_plan(
    function: Callable[..., Any], instead: Factories = MappingProxyType({})
) -> SharedPlan:
    """Return the plan of a lifespan.

    :param instead: as for :func:`plan_of`
    :raises RegistrationError: ``function`` is no context manager, or needs what it cannot get
    """
    if not callable(function):
        raise RegistrationError(
            f"lifespan is {a_type(function)}; give the function itself, without parentheses"
        )
    resolver = _Resolver("lifespan", {}, of_the_pod=True, instead=instead)
    plan = resolver.shared_plan(function, "lifespan")
    factory = plan.steps[-1].factory
    if factory is None or not factory.is_entered:
        raise RegistrationError(
            f"lifespan: {plan.name} does not yield; write a function with one yield, set-up before "
            "and tear-down after, with @asynccontextmanager above"
        )
    return plan


class _Resolver:
    """Finds what each factory needs, depth first.

    :param fields: the arguments of the handler that a job brings, with resolved annotations
    :param of_the_pod: the values live as long as a pod
    """

    def __init__(
        self,
        name: str,
        fields: Mapping[str, inspect.Parameter],
        *,
        of_the_pod: bool,
        instead: Factories,
    ) -> None:
        self.steps: list[Step] = []
        self._instead = instead
        self._name = name
        self._fields = fields
        self._of_the_pod = of_the_pod
        self._known: dict[Hashable, int] = {}
        self._open: list[Hashable] = []

    def given(self, value: str) -> int:
        """Return the number of the step for a value of the running job."""
        number = self._known.get(value)
        return self._add(value, Step(value, value=value)) if number is None else number

    def made(self, marker: Dependency, annotation: object, where: str) -> int:
        """Return the number of the step for a value that a factory makes."""
        function = marker.made_by(annotation)
        if function is None or function is Any:
            raise RegistrationError(
                f"{where} is marked {marker!r}, and the annotation is no class; name what makes "
                "the value, as Depends(session)"
            )
        if self._of_the_pod and not marker.is_shared:
            raise RegistrationError(
                f"{where} is {marker!r}, which lives as long as one job, but what needs it lives "
                f"as long as the pod; write Shared({name_of(function)})"
            )
        function = self._instead.get(key_of(function), function)
        key = (key_of(function), marker.is_shared)
        number = self._known.get(key) if marker.use_cache else None
        if number is not None:
            return number
        if marker.is_shared:
            plan = (
                _Resolver(self._name, self._fields, of_the_pod=True, instead=self._instead)
                ._under(self._open)
                .shared_plan(function, where)
            )
            return self._add(key, Step(plan.name, shared=plan))
        step = self._step(function, where)
        return self._add(key if marker.use_cache else object(), step)

    def shared_plan(self, function: Callable[..., Any], where: str) -> SharedPlan:
        """Return the plan of ``function``, whose value lives as long as the pod."""
        step = self._step(function, where)
        return SharedPlan(key_of(function), step.name, (*self.steps, step))

    def _under(self, open_: list[Hashable]) -> "_Resolver":
        self._open = open_
        return self

    def _add(self, key: Hashable, step: Step) -> int:
        self.steps.append(step)
        self._known[key] = len(self.steps) - 1
        return self._known[key]

    def _step(self, function: Callable[..., Any], where: str) -> Step:
        name = name_of(function)
        here = f"{where} needs {name}"
        key = key_of(function)
        if key in self._open:
            raise RegistrationError(
                f"{here}, which needs itself; give one of them what it needs in another way"
            )
        self._open.append(key)
        annotations = annotations_of(function, here)
        needs = {}
        for parameter in parameters_of(function, here):
            number = self._source(parameter, annotations.get(parameter.name), here)
            if number is not None:
                needs[parameter.name] = number
        self._open.pop()
        return Step(name, factory=Factory(function, annotations.get("return")), needs=needs)

    def _source(self, parameter: inspect.Parameter, annotation: object, here: str) -> int | None:
        """Return the number of the step that gives an argument, None for a default."""
        where = f"{here}: {parameter.name}"
        marker = marker_of(parameter.default, metadata_of(annotation), where)
        if marker is not None:
            return self.made(marker, annotation, where)
        value = value_of(annotation)
        if value is not None and (not self._of_the_pod or value in OF_THE_POD):
            return self.given(value)
        check_default(parameter.default, where)
        field = self._fields.get(parameter.name)
        if field is not None and not self._of_the_pod:
            return self._from_the_job(field, annotation, where)
        if parameter.default is not parameter.empty:
            return None
        if value is not None or field is not None:
            raise RegistrationError(
                f"{where} is a value of one job, but what needs it lives as long as the pod; take "
                "it in the handler"
            )
        also = f" (those of {self._name} are {', '.join(self._fields)})" if self._fields else ""
        raise RegistrationError(
            f"{where} has no default, and nothing says what makes it; mark it with Depends(...) or "
            f"Shared(...), annotate it with one of {names()}, name an argument that the job "
            f"brings{also}, or give it a default"
        )

    def _from_the_job(self, field: inspect.Parameter, annotation: object, where: str) -> int:
        """Return the number of the step for an argument of the handler."""
        brought, wanted = field.annotation, annotation
        if not _fits(brought, wanted):
            raise RegistrationError(
                f"{where} is annotated {_shown(wanted)}, but the argument {field.name} that the "
                f"job brings is {_shown(brought)}; annotate both the same, or rename one of them"
            )
        key = ("field", field.name)
        number = self._known.get(key)
        return self._add(key, Step(field.name, field=field)) if number is None else number


def _fits(brought: object, wanted: object) -> bool:
    """Return False where a class is wanted, and the job brings something else for sure."""
    if get_origin(brought) is Annotated:
        brought = get_args(brought)[0]
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    if get_origin(brought) in _UNIONS:
        return all(_fits(part, wanted) for part in get_args(brought))
    if get_origin(wanted) in _UNIONS:
        return any(_fits(brought, part) for part in get_args(wanted))
    if brought is Any or wanted is Any:
        return True
    if not (isinstance(brought, type) and isinstance(wanted, type)):
        return True
    try:
        return issubclass(brought, wanted) or (brought is int and wanted is float)
    except TypeError:
        return True  # a protocol, which no class can be held to


def _shown(annotation: object) -> str:
    return getattr(annotation, "__name__", str(annotation))


def key_of(function: Callable[..., Any]) -> Hashable:
    """Return the key by which a factory is known."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function
