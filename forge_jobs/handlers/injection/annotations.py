"""Annotations of a function as types, also where the module postpones them, or Python does.

From Python 3.14 on annotations are evaluated when they are read, and ``NameError`` says then that a
name is imported for type checkers only. ``annotationlib`` gives a ``ForwardRef`` for such a name.
"""

import importlib
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
    for parameter, annotation in _written(target).items():
        holder = SimpleNamespace(__annotations__={parameter: annotation})
        try:
            hints = get_type_hints(
                holder, globalns=getattr(target, "__globals__", {}), include_extras=True
            )
        except Exception as error:
            text = getattr(annotation, "__forward_arg__", annotation)
            if parameter == "return":
                yield parameter, text
                continue
            if isinstance(text, str) and text.rpartition(".")[2] == "JobContext":
                yield parameter, JobContext
                continue
            raise RegistrationError(
                f"{name}: the annotation of {parameter} cannot be resolved ({error});"
                " import what it names at run time, at the top of the module"
            ) from None
        yield parameter, hints[parameter]


def _written(target: Any) -> dict[str, Any]:
    """Return the annotations as they are written: types, texts, and references to missing names."""
    try:
        return dict(getattr(target, "__annotations__", {}))
    except NameError:
        lib = importlib.import_module("annotationlib")
        return dict(lib.get_annotations(target, format=lib.Format.FORWARDREF))


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature, also where a name of an annotation is not there at run time.

    :raises TypeError: the function has none. Also ``ValueError``
    """
    try:
        return inspect.signature(function)
    except NameError:
        lib = importlib.import_module("annotationlib")
        options: dict[str, Any] = {"annotation_format": lib.Format.FORWARDREF}
        return inspect.signature(function, **options)


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
