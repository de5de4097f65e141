"""Annotations of a function as types, also where the module postpones them."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from forge_jobs.errors import RegistrationError
from forge_jobs.handlers.context import JobContext


def annotations_of(function: Callable[..., object], name: str) -> dict[str, Any]:
    """Return the annotations of the parameters and of the result. The latter as written, a text,
    when its name is not there at run time.

    :param name: what errors call the function
    :raises RegistrationError: an annotation names something that is not there at run time
    """
    source: Any = function
    while hasattr(source, "func"):
        source = source.func
    if inspect.isclass(source):
        source = source.__init__
    elif not inspect.isroutine(source):
        source = type(source).__call__
    try:
        return get_type_hints(source, include_extras=True)
    except Exception:
        return dict(_one_by_one(source, name))


def _one_by_one(function: Callable[..., object], name: str) -> Iterator[tuple[str, Any]]:
    """Resolve each annotation alone, so that the error names the parameter, and so that a
    JobContext imported for type checkers only is still recognised."""
    target = inspect.unwrap(function)
    for parameter, annotation in getattr(target, "__annotations__", {}).items():
        holder = SimpleNamespace(__annotations__={parameter: annotation})
        try:
            hints = get_type_hints(
                holder, globalns=getattr(target, "__globals__", {}), include_extras=True
            )
        except Exception as error:
            if parameter == "return":
                yield parameter, annotation
                continue
            if isinstance(annotation, str) and annotation.rpartition(".")[2] == "JobContext":
                yield parameter, JobContext
                continue
            raise RegistrationError(
                f"{name}: the annotation of {parameter} cannot be resolved ({error});"
                " import what it names at run time, at the top of the module"
            ) from None
        yield parameter, hints[parameter]


def metadata_of(annotation: object) -> tuple[object, ...]:
    """Return what ``Annotated`` puts beside the type."""
    return getattr(annotation, "__metadata__", ())


def classes_of(annotation: object) -> Iterator[type]:
    """Yield the classes that an annotation names, with their bases: all parts of a union."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from classes_of(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from classes_of(part)
    else:
        yield from getattr(origin or annotation, "__mro__", ())
