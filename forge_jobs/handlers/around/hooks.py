"""Hooks: functions that are called with the decided end of a run, before the end is stored."""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import Struct

from forge_jobs.errors import RegistrationError, a_type
from forge_jobs.handlers.injection.annotations import annotations_of, classes_of
from forge_jobs.handlers.injection.factories import is_shaped, parameters_of
from forge_jobs.handlers.injection.markers import name_of
from forge_jobs.handlers.injection.plan import Factories, InjectionPlan, plan_of
from forge_jobs.handlers.injection.running import injected
from forge_jobs.handlers.injection.values import names
from forge_jobs.handlers.options import GivenHooks
from forge_jobs.model.jobs import Cause, ErrorRecord, JobStatus

EVENTS = ("on_error", "on_retry", "on_dead", "on_done")


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run has ended, for hooks: decided, and not stored yet.

    :param status: the job's status once the end is stored: ``done``, ``dead``, or ``failed`` for a
        job that is tried again. ``pending`` when the handler's own process has crashed and the job
        runs again
    :param cause: succeeded, failed, timed_out, rejected (the handler raised ``Dead``), crashed,
        snoozed or throttled (too often)
    :param error: as stored with the job, secrets hidden. None for a success without any trouble
    :param exception: as the handler raised it, secrets included. None for a success, and for a
        handler in a process
    :param retry_in: so much later the job is due again. None: the job runs no more
    """

    status: JobStatus
    cause: Cause
    error: ErrorRecord | None = None
    exception: BaseException | None = None
    retry_in: timedelta | None = None


class Hook:
    """A function that is called with the ends of runs.

    :ivar event: the option that the function was given for
    :ivar name: for people
    :ivar is_async: the function is a coroutine function
    :ivar needs_thread: the function, or what is injected into the function, works in a thread
    :ivar end_parameter: gets the ``RunEnd``. None: the function takes none
    :ivar run: calls the function with the injected parameters
    """

    def __init__(self, function: Any, event: str, where: str) -> None:
        if not callable(function):
            raise RegistrationError(
                f"{where}: {event} is {a_type(function)}; give a function, or a list of functions"
            )
        self.event = event
        self.name = name_of(function)
        here = f"{where}: {event} {self.name}"
        if any(is_shaped(shape, function) for shape in _YIELDS):
            raise RegistrationError(
                f"{here} yields, and a hook returns; for code around the run give middleware=[...]"
            )
        self._function = function
        self._plan, self.end_parameter = _planned(function, here)
        self.is_async = is_shaped(inspect.iscoroutinefunction, function)
        self._take(self._plan())

    def _take(self, plan: InjectionPlan | None) -> None:
        plan = plan or InjectionPlan((), {})
        self.needs_thread = plan.needs_thread or not self.is_async
        self.run = injected(plan, self._function)

    def standing_in(self, instead: Factories) -> "Hook":
        """Return the hook with other factories, see :func:`plan_of`."""
        other = copy.copy(self)
        other._take(self._plan(instead=instead))
        return other


_YIELDS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def _planned(
    function: Callable[..., Any], here: str
) -> tuple[Callable[..., InjectionPlan | None], str | None]:
    annotations = annotations_of(function, here)
    parameters = parameters_of(function, here)
    ends = [p.name for p in parameters if RunEnd in classes_of(annotations.get(p.name))]
    if len(ends) > 1:
        raise RegistrationError(f"{here}: {' and '.join(ends)} are both a RunEnd; keep one")
    others = [p for p in parameters if p.name not in ends]
    planned = partial(plan_of, others, annotations, here)
    plan = planned()
    made = dict(plan.parameters) if plan is not None else {}
    for parameter in others:
        if parameter.name not in made and parameter.default is parameter.empty:
            raise RegistrationError(
                f"{here}: {parameter.name} has no default, and nothing says what makes it; "
                f"annotate it with RunEnd or one of {names()}, mark it with Depends(...), or give "
                "it a default"
            )
    return planned, ends[0] if ends else None


class Hooks:
    """The hooks of a handler, by event, those of the registry first."""

    def __init__(self, by_event: dict[str, tuple[Hook, ...]]) -> None:
        self._by_event = by_event
        self.need_thread = any(hook.needs_thread for some in by_event.values() for hook in some)

    def __bool__(self) -> bool:
        return any(self._by_event.values())

    def __add__(self, other: "Hooks") -> "Hooks":
        return Hooks({event: (*self._of(event), *other._of(event)) for event in EVENTS})

    def standing_in(self, instead: Factories) -> "Hooks":
        """Return the hooks with other factories, see :func:`plan_of`."""
        return Hooks(
            {
                event: tuple(hook.standing_in(instead) for hook in hooks)
                for event, hooks in self._by_event.items()
            }
        )

    def of(self, end: RunEnd) -> Iterator[Hook]:
        """Return the hooks to call for an end, in order."""
        for event in _events(end):
            yield from self._of(event)

    def _of(self, event: str) -> tuple[Hook, ...]:
        return self._by_event.get(event, ())


def _events(end: RunEnd) -> tuple[str, ...]:
    if end.status is JobStatus.DONE:
        return ("on_done",)
    if end.status is JobStatus.DEAD:
        return ("on_error", "on_dead")
    if end.status is JobStatus.FAILED or end.cause is Cause.CRASHED:
        return ("on_error", "on_retry")
    return ()


def hooks_of(where: str, **given: GivenHooks) -> Hooks:
    """Return what is given as ``on_error=`` and the like.

    :param where: names the registry or the kind in errors
    :raises RegistrationError: one of them cannot be a hook as written
    """
    return Hooks({event: _of_event(functions, event, where) for event, functions in given.items()})


def _of_event(functions: Any, event: str, where: str) -> tuple[Hook, ...]:
    if callable(functions) or not isinstance(functions, Iterable):
        functions = (functions,)
    return tuple(Hook(function, event, where) for function in functions)
