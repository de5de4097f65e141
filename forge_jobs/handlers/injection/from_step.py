"""The result of another step of the workflow, for a parameter of a handler."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from forge_jobs.handlers.context import JobContext, ParentJob
from forge_jobs.handlers.injection.markers import Dependency, Depends
from forge_jobs.handlers.outcomes import Dead
from forge_jobs.model.names import check_name


def FromStep(name: str) -> Any:
    """Inject the result of a step that this one comes after, read as the parameter is annotated.

    Written as :func:`Depends`: ``rows: list[int] = FromStep("fetch")``, or in the annotation,
    ``rows: Annotated[list[int], FromStep("fetch")]``. The parameter is no part of the payload. All
    such parameters of a job are read at once, when the job runs.

    Of a step that is a ``Group`` the results of all members, in the order of the group:
    ``Annotated[list[int], FromStep("parts")]``.

    A run fails by ``JobDead``, ``JobCancelled``, ``NotFound`` or ``InvalidInput`` when the step has
    no result of that type: see ``ParentJob.result``. The job is dead when it does not come after
    such a step.

    :raises InvalidInput: ``name`` is no name
    """
    return _StepResult(check_name("step", name))


class _StepResult(Dependency):
    def __init__(self, step: str) -> None:
        super().__init__(None, is_shared=False, use_cache=False)
        self._step = step

    def __repr__(self) -> str:
        return f"FromStep({self._step!r})"

    def made_by(self, annotation: object) -> Callable[..., Any]:
        kind: Any = Any if annotation is None else annotation
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        name = self._step

        async def from_step(
            steps: Annotated[Mapping[str, list[ParentJob]], Depends(parents_by_step)],
        ) -> Any:
            if name not in steps:
                there = ", ".join(map(repr, sorted(steps)[:8])) or "none"
                raise Dead(f"the job comes after no step {name!r}; the steps before are: {there}")
            found = steps[name]
            if found[0].group is None:
                return found[0].result(kind)
            member = _kind_of_members(name, kind)
            return [each.result(member) for each in found]

        return from_step


def _kind_of_members(step: str, kind: Any) -> Any:
    if kind in (Any, list):
        return Any
    if get_origin(kind) is not list:
        raise Dead(f"step {step!r} is a group, whose results are a list; annotate list[...]")
    return get_args(kind)[0]


async def parents_by_step(ctx: JobContext) -> dict[str, list[ParentJob]]:
    """Read the steps of the workflow that the job comes after. Of a group all members."""
    found: dict[str, list[ParentJob]] = {}
    for each in await ctx.parents():
        if each.step:
            found.setdefault(each.step, []).append(each)
    return found
