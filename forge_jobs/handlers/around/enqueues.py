"""Middleware around enqueues, as a program gives it: generator functions of the request."""

import inspect
from collections.abc import Iterable
from typing import Any

from forge_jobs.errors import RegistrationError, a_type
from forge_jobs.handlers.injection.annotations import signature_of
from forge_jobs.handlers.injection.factories import is_shaped
from forge_jobs.handlers.injection.markers import name_of
from forge_jobs.handlers.options import AroundEnqueue

_SHAPES = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def enqueue_middleware_of(given: object, where: str) -> tuple[AroundEnqueue, ...]:
    """Return what is given as ``enqueue_middleware=``.

    :param where: names the registry or the kind in errors
    :raises RegistrationError: one of them is no generator function of one argument
    """
    if callable(given) or not isinstance(given, Iterable):
        raise RegistrationError(
            f"{where}: enqueue_middleware is {a_type(given)}; give a list of functions that yield "
            "the request once"
        )
    return tuple(_one(each, where) for each in given)


def _one(function: Any, where: str) -> AroundEnqueue:
    if not callable(function):
        raise RegistrationError(
            f"{where}: enqueue_middleware has {a_type(function)}, which cannot be called; give the "
            "function itself, without parentheses"
        )
    name = name_of(function)
    if not any(is_shaped(shape, function) for shape in _SHAPES):
        raise RegistrationError(
            f"{where}: the enqueue_middleware {name} does not yield; write a function with "
            "`outcome = yield request`, without a decorator of contextlib"
        )
    try:
        signature_of(function).bind(None)
    except TypeError:
        raise RegistrationError(
            f"{where}: the enqueue_middleware {name} cannot be called with the request alone; "
            "write def name(request) with no further parameter, or with defaults"
        ) from None
    return AroundEnqueue(function, name)
