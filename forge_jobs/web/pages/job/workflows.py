"""The pages of workflows."""

from forge_jobs.clients.flows.workflows import StepState
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.jobs.workflows import WorkflowView
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.job.graphs import graph_of
from forge_jobs.web.pages.words import number

_LISTED = 50
_SHOWN = 500
"""Steps of one page. The command shows all."""
_BY_PAGE = 50
"""So many jobs an action may name in the address of its page."""


async def workflows_page(visit: Visit) -> Shown:
    """Show workflows, the newest first."""
    cursor = visit.parameter("cursor") or None
    found = await visit.operator.list_workflows(cursor=cursor, limit=_LISTED)
    lines = found.workflows
    held = sum(each.held > 0 and each.status is JobStatus.BLOCKED for each in lines)
    said = f", {number(held)} held by failed steps" if held else ""
    noun = "workflow" if len(lines) == 1 and not found.cursor else "workflows"
    count = "The newest" if found.cursor or cursor else number(len(lines))
    return Shown(
        template="workflows.html",
        title="Workflows",
        commands=("forge-jobs workflows list",),
        values={"headline": f"{count} {noun}{said}", "workflows": lines, "cursor": found.cursor},
    )


async def workflow_page(visit: Visit) -> Shown:
    """Show one workflow, its steps and what holds them."""
    found = await visit.operator.get_workflow(visit.name("workflow_id"))
    access = visit.actor.access
    failed = [each.job_id for each in found.steps if each.has_failed and each.status]
    failed += [found.id] if found.status in (JobStatus.DEAD, JobStatus.CANCELLED) else []
    is_done = found.status is JobStatus.DONE
    fits = 0 < len(failed) <= _BY_PAGE and not is_done
    commands = [f"forge-jobs workflows show {found.id}"]
    if failed and not is_done:
        commands.append(f"forge-jobs workflows resume {found.id}")
    if found.waiting:
        commands.append(f"forge-jobs workflows cancel {found.id}")
    return Shown(
        template="workflow.html",
        title=found.name or found.id[-6:],
        commands=tuple(commands),
        values={
            "workflow": found,
            "headline": _headline(found),
            "share": found.done / max(found.total, 1),
            "graph": graph_of(found.steps),
            "steps": [_row(each) for each in found.steps[:_SHOWN]],
            "more": max(found.total - _SHOWN, 0),
            "resumed": failed if fits and access.allows("requeue_jobs") else [],
        },
    )


def _headline(found: WorkflowView) -> str:
    said = f"{number(found.done)} of {number(found.total)} steps done"
    if found.held_by:
        names = ", ".join(found.held_by[:3])
        more = f" and {number(len(found.held_by) - 3)} more" if len(found.held_by) > 3 else ""
        return f"{said}, held by {names}{more}"
    return said


def _row(step: StepState) -> tuple[StepState, str]:
    after = [name if word == "hold" else f"{name} ({word})" for name, word in step.after.items()]
    more = f" and {number(len(after) - 5)} more" if len(after) > 5 else ""
    return step, ", ".join(after[:5]) + more
