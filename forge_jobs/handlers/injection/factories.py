"""Factories: what is called to make a value, and what is entered and left around its use."""

import inspect
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, get_origin

from forge_jobs.errors import RegistrationError
from forge_jobs.handlers.injection.annotations import signature_of


class Factory:
    """How a value is made. The shape of the function decides, before any call.

    :ivar call: makes the value, or the context manager that gives the value
    :ivar is_awaited: ``call`` returns a coroutine
    :ivar is_entered: what ``call`` makes is a context manager, which is entered and left
    :ivar is_async: works on the event loop. Otherwise in a thread
    """

    def __init__(self, function: Callable[..., Any], result: object) -> None:
        """Judge the shape of ``function``.

        :param result: the annotation of what ``function`` returns
        """
        self.call = function
        self.is_awaited = is_shaped(inspect.iscoroutinefunction, function)
        plain = _innermost(function)
        if is_shaped(inspect.isasyncgenfunction, function):
            self.call, self.is_entered, self.is_async = asynccontextmanager(function), True, True
        elif is_shaped(inspect.isgeneratorfunction, function):
            self.call, self.is_entered, self.is_async = contextmanager(function), True, False
        elif inspect.isclass(plain):
            self.is_async = hasattr(plain, "__aenter__") and hasattr(plain, "__aexit__")
            is_manager = self.is_async or (
                hasattr(plain, "__enter__") and hasattr(plain, "__exit__")
            )
            # A lock that is entered is a lock that is held.
            self.is_entered = is_manager and not (
                hasattr(plain, "acquire") and hasattr(plain, "release")
            )
        else:
            made_by = inspect.unwrap(plain) if hasattr(plain, "__wrapped__") else None
            declared = get_origin(result) or result
            is_async_manager = (
                inspect.isasyncgenfunction(made_by) or declared is AbstractAsyncContextManager
            )
            is_manager = not self.is_awaited and (
                inspect.isgeneratorfunction(made_by) or declared is AbstractContextManager
            )
            self.is_async = self.is_awaited or is_async_manager
            self.is_entered = is_async_manager or is_manager


def parameters_of(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    """Return the parameters of a factory that can be given by name.

    :param where: names the factory in errors
    :raises RegistrationError: a parameter can only be given by its place
    """
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):
        return []  # a builtin, such as dict
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise RegistrationError(
                f"{where} has the positional-only parameter {parameter.name}, but values are "
                "injected by name; remove the '/'"
            )
    by_place = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each
        for each in parameters
        if each.kind not in (*by_place, inspect.Parameter.POSITIONAL_ONLY)
    ]


def _innermost(function: Any) -> Any:
    while hasattr(function, "func"):
        function = function.func
    return function


def is_shaped(judge: Callable[[Any], bool], function: Any) -> bool:
    """Return what ``judge`` says of a function, looking through partials and callable objects."""
    plain = _innermost(function)
    if inspect.isclass(plain):
        return False
    return judge(plain) or judge(getattr(plain, "__call__", None))  # noqa: B004
