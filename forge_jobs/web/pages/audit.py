"""The pages of what operators did."""

import shlex

import msgspec
from msgspec import structs

from forge_jobs.clients.records.values import value_of
from forge_jobs.errors import InvalidInput
from forge_jobs.model.actions import ActionState
from forge_jobs.model.answering.filters import query_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.queries.writing import format_query
from forge_jobs.operating.access import Access
from forge_jobs.operating.actions.calls import RESTORE
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.actions.editing import EDIT_JOB
from forge_jobs.operating.operations import BY_NAME
from forge_jobs.web.pages.acting import outcome
from forge_jobs.web.pages.deeds import DEEDS
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import number

_SHOWN_JOBS = 20


async def audit_page(visit: Visit) -> Shown:
    """Show the records of all actions, the newest first."""
    found = await visit.operator.list_actions(cursor=visit.parameter("cursor") or None)
    running = sum(each.state is ActionState.RUNNING for each in found.actions)
    noun = "action runs" if running == 1 else "actions run"
    access = visit.actor.access
    return Shown(
        template="audit.html",
        title="Audit",
        commands=("forge-jobs actions list",),
        values={
            "headline": f"{running} {noun}" if running else "What operators did",
            "actions": [
                {
                    "record": each,
                    "what": sentence(each),
                    "state": _state(each),
                    "undo": "undo_action" in open_for(access, each),
                }
                for each in found.actions
            ],
            "cursor": found.cursor,
            "at_cursor": visit.parameter("cursor"),
            "marks": MARKS,
        },
    )


MARKS = {ActionState.RUNNING: "run", ActionState.DONE: "good", ActionState.ABORTED: "warn"}
"""The marks of states."""


async def action_page(visit: Visit) -> Shown:
    """Show one action and what has become of its jobs."""
    action = await visit.operator.get_action(visit.name("action_id"))
    deed = DEEDS.get(action.verb)
    of_jobs = deed is not None and bool(deed.verb)
    jobs = await visit.operator.action_jobs(action.id, limit=_SHOWN_JOBS) if of_jobs else None
    offered = open_for(visit.actor.access, action)
    return Shown(
        template="action.html",
        title=sentence(action),
        commands=tuple(f"forge-jobs actions {verb} {action.id}" for verb in ("show", "jobs")),
        values={
            "action": action,
            "headline": sentence(action),
            "state": _state(action),
            "mark": MARKS[action.state],
            "query": _query(action.which),
            "before": _pretty(action.before),
            "after": _pretty(action.after),
            "lines": outcome(deed, action) if deed and of_jobs else [],
            "jobs": jobs.job_ids if jobs else (),
            "more_jobs": bool(jobs and jobs.cursor),
            "are_gone": action.verb == "delete_jobs",
            "deeds": [DEEDS[name] for name in offered],
            "repeat": _repeat(action),
        },
    )


def sentence(action: ActionView) -> str:
    """Return what an action did, in words."""
    deed = DEEDS.get(action.verb)
    words = action.verb.replace("_", " ").capitalize()
    if deed and deed.verb:
        noun = "job" if action.matched == 1 else "jobs"
        count = number(action.matched) if action.matched else "matching"
        named = ", ".join(action.queues[:3]) + (", …" if len(action.queues) > 3 else "")
        what = f"{deed.label} {count} {noun}" + (f" of {named}" if named else "")
        return f"Undo: {what[0].lower()}{what[1:]}" if action.undoes else what
    start = "Undo: " if action.undoes else ""
    return f"{start}{words} {action.target}".strip()


def open_for(access: Access, action: ActionView) -> list[str]:
    """Return the operations on a record that fit the moment and that the caller may do."""
    if not access.allows(action.verb):
        return []
    if action.state is ActionState.RUNNING:
        return ["abort_action", "continue_action"]
    if action.verb == "cancel_jobs":
        met = action.changed + action.requested
        return ["undo_action"] if met and access.allows(RESTORE) else []
    # Without the right to payloads the values are hidden, so the undo itself compares them.
    has_changed = action.before != action.after or not access.payloads
    has_inverse = value_of(action.verb) is not None or action.verb == EDIT_JOB
    return ["undo_action"] if has_changed and has_inverse else []


def _state(action: ActionView) -> str:
    if action.state is ActionState.RUNNING and action.matched:
        seen = action.changed + action.requested + action.refused
        return f"running {min(99, 100 * seen // action.matched)} %"
    return action.state.value


def _query(which: JobFilter | None) -> str:
    """Return the line of the filter language, without the instant of the preview."""
    if which is None:
        return ""
    try:
        return format_query(query_of(structs.replace(which, enqueued_before=None)))
    except InvalidInput:
        return ""


def _repeat(action: ActionView) -> str:
    """Return the command that shows what the same action would do now."""
    query = _query(action.which)
    if not query:
        return ""
    command = BY_NAME[action.verb].command.split()
    return shlex.join(["forge-jobs", *command, "--where", query, "--all-matching", "--preview"])


def _pretty(text: str) -> str:
    return msgspec.json.format(text, indent=2) if text else ""
