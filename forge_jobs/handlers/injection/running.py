"""A run with injected parameters: make them, call the handler, clean up."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from forge_jobs.handlers.injection.opened import Opened
from forge_jobs.handlers.injection.plan import InjectionPlan, SharedPlan, Step
from forge_jobs.handlers.injection.values import OF_THE_JOB

T = TypeVar("T")


class RunScope(Protocol):
    """A run, as the function sees it that is composed at registration."""

    @property
    def context(self) -> Any:
        """The JobContext of the run."""
        ...

    async def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> object:
        """Call the handler: a coroutine function in this task, a plain function in a thread."""
        ...

    async def in_thread(self, call: Callable[[], T], /) -> T:
        """Make a call in the thread of the run. Contexts of all calls of a run are one."""
        ...

    async def shared(self, plan: SharedPlan) -> Any:
        """Return a value of the pod, which is made when it is needed for the first time."""
        ...

    def go_on(self) -> None:
        """Return while the run may go on.

        :raises asyncio.CancelledError: the run was stopped while a value was made
        """
        ...

    def clean_up_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        """Report that a clean-up raised. Return the exception by which the run ends.

        :param error: what the run had ended with before. None: with success
        """
        ...

    def middleware_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        """Report that middleware raised after the run. Return ``error``: the end stays."""
        ...


ComposedRun = Callable[[RunScope, dict[str, Any]], Coroutine[Any, Any, object]]
"""The run of a job around and including the call of the handler. Given the scope and the arguments
by name. What wraps handlers wraps this function, at registration."""


def injected(plan: InjectionPlan, function: Callable[..., Any]) -> ComposedRun:
    """Return the run of a handler whose parameters are made by ``plan``."""

    async def run(scope: RunScope, arguments: dict[str, Any]) -> object:
        opened = Opened(scope.in_thread, scope.clean_up_failed)
        result: object = None
        error: BaseException | None = None
        try:
            values: list[Any] = []
            for step in plan.steps:
                values.append(await _value(step, values, arguments, scope, opened))
            for parameter, number in plan.parameters:
                arguments[parameter] = values[number]
            result = await scope.call(function, arguments)
        except GeneratorExit:
            raise  # the event loop is gone, and nothing can be awaited any more
        except BaseException as raised:  # whatever it is, the clean-ups learn of it
            error = raised
        try:
            error = await opened.close(error)
            if error is not None:
                raise error
        finally:
            error = None  # an exception must not hold the frame that holds the exception
        return result

    return run


async def _value(
    step: Step, values: list[Any], arguments: dict[str, Any], scope: RunScope, opened: Opened
) -> Any:
    if step.field is not None:
        return arguments.get(step.field, step.default)
    if step.value is not None:
        return OF_THE_JOB[step.value](scope.context)
    if step.shared is not None:
        return await scope.shared(step.shared)
    assert step.factory is not None
    needed = {parameter: values[number] for parameter, number in step.needs}
    failed = scope.middleware_failed if step.is_middleware else None
    value = await opened.make(step.name, step.factory, needed, failed)
    # A thread saw no cancellation, and an asynchronous factory may have swallowed one.
    scope.go_on()
    return value
