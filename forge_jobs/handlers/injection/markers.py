"""Markers that a handler writes beside a parameter that shall be injected."""

from collections.abc import Callable, Iterable
from typing import Any

from forge_jobs.errors import RegistrationError, a_type
from forge_jobs.handlers.injection.annotations import classes_of


class _Stand:
    """Stands for a value that only a running job has."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            raise AttributeError(
                f"{self!r} stands for a value that is injected when a job runs. In a direct call "
                "of the handler, give the argument by name",
                name=name,
                obj=self,
            )
        raise AttributeError(name)


class Dependency(_Stand):
    """How a parameter is made, as :func:`Depends` and :func:`Shared` say.

    :param factory: None: the class that the parameter is annotated with
    :param is_shared: made once per pod, not once per job
    :param use_cache: all parameters of a job with this factory get one value
    """

    def __init__(
        self, factory: Callable[..., Any] | None, *, is_shared: bool, use_cache: bool = True
    ) -> None:
        self.factory = factory
        self.is_shared = is_shared
        self.use_cache = use_cache

    def made_by(self, annotation: object) -> Callable[..., Any] | None:
        """Return what makes the value of a parameter with this annotation. None: nothing says."""
        return self.factory or next(iter(classes_of(annotation)), None)

    def __repr__(self) -> str:
        name = "Shared" if self.is_shared else "Depends"
        return f"{name}({name_of(self.factory) if self.factory is not None else ''})"


class _Injected(_Stand):
    """The class of the default ``Injected``."""

    def __repr__(self) -> str:
        return "Injected"


Injected: Any = _Injected()
"""The default of a parameter whose annotation alone says what is injected.

With a default, a type checker does not ask ``request(...)`` for the parameter.
"""


def Depends(dependency: Callable[..., Any] | None = None, *, use_cache: bool = True) -> Any:
    """Inject what ``dependency`` makes, as in FastAPI: once per job, cleaned up when the job ends.

    Written as a default, ``db: Session = Depends(session)``, or in the annotation,
    ``db: Annotated[Session, Depends(session)]``. The parameter is no part of the payload.

    :param dependency: a function, a coroutine function, a generator function of either kind that
        yields once, a context manager, or a class. Parameters of ``dependency`` are injected the
        same way. Left out in an annotation: the annotated class
    :param use_cache: False: make another value for this parameter, also where the job has one
    :raises RegistrationError: ``dependency`` cannot be called
    """
    return Dependency(_callable("Depends", dependency), is_shared=False, use_cache=use_cache)


def Shared(dependency: Callable[..., Any] | None = None) -> Any:
    """Inject what ``dependency`` makes once per pod: a connection pool, an HTTP client.

    Written as :func:`Depends`. Made when a job first needs the value, and closed when the pod has
    stopped and the last handler has ended. Parameters of ``dependency`` may be ``Shared`` too, or
    a ``JobClient``.

    :raises RegistrationError: ``dependency`` cannot be called
    """
    return Dependency(_callable("Shared", dependency), is_shared=True)


def _callable(marker: str, value: Any) -> Callable[..., Any] | None:
    if value is None or callable(value):
        found: Callable[..., Any] | None = value
        return found
    raise RegistrationError(
        f"{marker}(...) is given {a_type(value)}, which cannot be called; give the function "
        "itself, without parentheses, or a lambda"
    )


def marker_of(default: object, metadata: tuple[object, ...], where: str) -> Dependency | None:
    """Return how a parameter is injected, None for one that is not.

    :param metadata: what the annotation has beside the type
    :param where: names the parameter in errors
    :raises RegistrationError: the parameter is marked twice, or with a marker that is not called
    """
    found = [each for each in map(_known, (default, *metadata)) if each is not None]
    if len(found) > 1:
        raise RegistrationError(
            f"{where} is marked twice ({found[0]!r} and {found[1]!r}); keep one of them"
        )
    return found[0] if found else None


def middleware_of(given: Iterable[object], where: str) -> tuple[Dependency, ...]:
    """Return middleware as dependencies without a parameter.

    :param where: names the registry or the kind in errors
    :raises RegistrationError: one of them cannot be called
    """
    if callable(given) or not isinstance(given, Iterable):
        raise RegistrationError(
            f"{where}: middleware is {a_type(given)}; give a list of functions that yield once"
        )
    found = []
    for each in given:
        marker = _known(each)
        if marker is None and callable(each):
            marker = Dependency(each, is_shared=False, use_cache=False)
        if marker is None or marker.factory is None:
            raise RegistrationError(
                f"{where}: middleware has {a_type(each)}, which cannot be called; give the "
                "function itself, without parentheses"
            )
        found.append(marker)
    return tuple(found)


def check_default(default: object, where: str) -> None:
    """Refuse the default ``Injected`` of a parameter that nothing makes.

    :raises RegistrationError: names the fix
    """
    if default is Injected:
        raise RegistrationError(
            f"{where} has the default Injected, but the annotation does not say what makes the "
            "value; write Annotated[type, Depends(...)]"
        )


def _known(value: object) -> Dependency | None:
    if isinstance(value, Dependency):
        return value
    if value is Depends or value is Shared:
        raise RegistrationError(f"{value.__name__} is not called; write {value.__name__}(factory)")
    kind = type(value)
    if kind.__name__ == "Depends" and kind.__module__.partition(".")[0] == "fastapi":
        # An alias of a web application, such as Annotated[Session, Depends(session)], works here.
        factory, use_cache = getattr(value, "dependency", None), getattr(value, "use_cache", True)
        return Dependency(factory, is_shared=False, use_cache=use_cache)
    return None


def name_of(factory: Callable[..., Any]) -> str:
    """Return the name of a factory for people."""
    while hasattr(factory, "func"):
        factory = factory.func
    return getattr(factory, "__qualname__", type(factory).__qualname__).rpartition("<locals>.")[2]
