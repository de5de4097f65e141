"""Actions: a page that says what would happen, and the deed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from forge_jobs.clients.striking import ADD
from forge_jobs.errors import Conflict, Forbidden, InvalidInput, NotFound
from forge_jobs.model.answering.filters import as_filter
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.names import check_name
from forge_jobs.model.pod_requests import PodVerb, RequestState
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.strikes import Effect
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.actions.previews import Apply, read_token
from forge_jobs.operating.actions.recording import VERBS
from forge_jobs.operating.jobs.strikes import in_words
from forge_jobs.operating.pods.documents import PodRequestView
from forge_jobs.web.pages.cron.occurrences import times_of
from forge_jobs.web.pages.deeds import ACTION_DEEDS, DEEDS, POD_DEEDS, REASONS, Deed
from forge_jobs.web.pages.forms import same
from forge_jobs.web.pages.forms.same import Meant
from forge_jobs.web.pages.forms.sending import form_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.queue import settings as of_queue
from forge_jobs.web.pages.words import length, number

R = TypeVar("R")

TYPED_ABOVE = 1_000
"""The number of jobs is typed above so many."""

LONGEST = 20.0
"""Seconds that a page waits for an action on many. The action goes on from its record."""


def _meant(visit: Visit) -> Meant:
    deed = DEEDS.get(visit.name("operation"))
    if deed is None:
        raise NotFound("there is no such action")
    # A record asks for the right of its own action, which the operator checks.
    if deed not in ACTION_DEEDS and not visit.actor.access.allows(deed.operation):
        raise Forbidden(visit.actor.name, deed.operation)
    fields = tuple(visit.request.query_params.multi_items())
    if deed.operation in ("set_queue", "set_limit", "set_concurrency"):
        fields = tuple(
            each for each in fields if each[1].strip() or each[0] in of_queue.MAY_BE_EMPTY
        )
    return Meant(deed=deed, fields=fields)


def _which(meant: Meant, visit: Visit) -> JobFilter:
    """Return the jobs of a deed.

    :raises InvalidInput: none is named, or a bad filter
    """
    if meant.ids:
        return JobFilter(ids=tuple(check_job_id(each, "id") for each in meant.ids))
    q = meant.value("q").strip()
    if not q:
        raise InvalidInput("q", "is empty, and no job is selected", "select jobs or give a filter")
    return as_filter(parse_query(q), visit.now)


async def act_page(visit: Visit) -> Shown:
    """Show what a deed would do, or do the deed."""
    meant = _meant(visit)
    if visit.request.method == "POST":
        return await _done(visit, meant)
    if meant.deed.verb:
        return await _preview_of_jobs(visit, meant)
    if meant.deed in POD_DEEDS:
        return await _preview_of_pod(visit, meant)
    if meant.deed in ACTION_DEEDS:
        action = await visit.operator.get_action(meant.value("name"))
        visit.actor.act(action.verb)
    if meant.deed.operation == ADD:
        return await _preview_of_strike(visit, meant)
    return _preview_of_name(visit, meant)


# -- previews ------------------------------------------------------------------------------------


async def _preview_of_jobs(visit: Visit, meant: Meant) -> Shown:
    deed = meant.deed
    found = await visit.operator.preview_action(deed.operation, _which(meant, visit))
    fitting = found.count - sum(found.refused.values())
    some = "+" if found.more else ""
    count = f"{number(fitting)}{some}"
    noun = "job" if count == "1" else "jobs"
    refused = [(REASONS[each], number) for each, number in found.refused.items()]
    missing = len(set(meant.ids)) - found.count
    if missing > 0:
        refused.append((REASONS[Refusal.NOT_FOUND], missing))
    return _preview(
        visit,
        meant,
        headline=f"{deed.label} {count} {noun}",
        button=f"{deed.label} {count} {noun}",
        can_apply=fitting > 0 or found.more,
        found=found,
        matched=f"{number(found.count)}{some}",
        refused=refused,
        typed=number(found.count) if found.count > TYPED_ABOVE else "",
        token=found.token,
    )


async def _preview_of_pod(visit: Visit, meant: Meant) -> Shown:
    """Show what runs on the pod beside what is asked for."""
    name = meant.value("name")
    found = {str(each.pod.host_id): each for each in (await visit.operator.list_pods()).pods}
    if name not in found:
        raise NotFound(f"there is no pod {name!r}; the store forgets pods that have ended")
    workers = await visit.storage.procs.workers(found[name].pod.host_id)
    runs = [
        f"{each.kind} in {each.queue}, for {length(visit.now - each.started_at)}"
        for each in sorted(workers, key=lambda each: each.started_at)
        if visit.actor.sees(each.queue)
    ]
    label = found[name].pod.label or name
    return _preview_of_name(visit, meant, label=label, runs=runs)


async def _preview_of_strike(visit: Visit, meant: Meant) -> Shown:
    """Say what the strike means, how many waiting jobs, and which strike it replaces."""
    name, rule = check_name("name", meant.value("name")), same.rule_of(meant)
    parts = [f"of kind {rule.kind}"] if rule.kind else []
    parts += [f"with {rule.where}"] if rule.where else []
    fate = "cancelled" if rule.effect is Effect.CANCEL else "held"
    replaced = ""
    for other in (await visit.operator.list_strikes()).strikes:
        if other.name == name:
            old = " and ".join(filter(None, (other.rule.kind, other.rule.where)))
            replaced = f"This replaces the strike of that name: {old}, by {other.by or 'nobody'}."
    try:
        found = await visit.operator.preview_strike(rule.kind, rule.where)
        counted = in_words(found, rule)
    except Forbidden:
        counted = "How many jobs that are is not shown to who may not see their payloads."
    label = f"{meant.deed.label} {name}"
    return _preview(
        visit,
        meant,
        headline=label,
        button=label,
        danger=rule.effect is Effect.CANCEL,
        strike=f"Jobs {' and '.join(parts)} are {fate}.",
        replaced=replaced,
        counted=counted,
        can_apply=True,
        found=None,
        typed="",
        token="",
    )


def _preview_of_name(
    visit: Visit, meant: Meant, *, label: str = "", runs: Sequence[str] | None = None
) -> Shown:
    name = label or meant.label
    changes = dict(meant.changes)
    said = "".join(f", {of_queue.in_words(key, value)}" for key, value in meant.changes)
    times = None
    if changes.get("expression") and changes.get("timezone"):
        times = times_of(changes["expression"], changes["timezone"], visit.now)
    return _preview(
        visit,
        meant,
        headline=f"{meant.deed.label} {name}{said}",
        button=f"{meant.deed.label} {name}",
        can_apply=times is None or not times.problem,
        times=times,
        found=None,
        matched="",
        refused=[],
        typed="",
        token="",
        runs=runs,
    )


def _preview(visit: Visit, meant: Meant, **values: Any) -> Shown:
    return Shown(
        template="act.html",
        title=meant.deed.label,
        values={
            "consequence": meant.deed.consequence,
            "danger": meant.deed.danger,
            "same": same.command(meant),
            "curl": same.request(meant, visit, values["token"]),
            "python": same.code(meant, values["token"]),
            "back": _back(visit, meant),
            "copy": same.export_of(meant) if meant.deed.operation == "delete_jobs" else "",
            **values,
        },
    )


def _back(visit: Visit, meant: Meant) -> str:
    root = visit.request.scope.get("root_path", "")
    operation = meant.deed.operation
    if meant.deed in ACTION_DEEDS:
        return link(root, "audit", meant.value("name"))
    if meant.deed.verb:
        if len(meant.ids) == 1:
            return link(root, "jobs", meant.ids[0])
        return link(root, "jobs", q=meant.value("q"))
    if meant.deed in POD_DEEDS:
        return link(root, "pods", meant.value("name"))
    if meant.is_of_outbox:
        return link(root, "store", "outbox", meant.value("name"))
    if operation.endswith(("limit", "concurrency", "strike")):
        return link(root, "limits")
    is_gone = operation.startswith("delete")
    place = "cron" if operation.endswith("schedule") else "queues"
    return link(root, place) if is_gone else link(root, place, meant.value("name"))


# -- deeds ---------------------------------------------------------------------------------------


async def _done(visit: Visit, meant: Meant) -> Shown:
    form = await form_of(visit.request)
    again = record = answer = ""
    is_left = False
    try:
        headline = "Done"
        if meant.deed in POD_DEEDS:
            lines, answer, headline = await _ask_pod(visit, meant)
        else:
            action = await _apply(visit, meant, form)
            lines = outcome(DEEDS[action.verb], action) if action else [_good(meant)]
            record = action.id if action else ""
    except (Conflict, InvalidInput, NotFound) as error:
        lines = [{"mark": "bad", "text": str(error)}]
        headline = "Nothing was changed"
        again = visit.request.url.query if meant.deed.verb else ""
    except _StillAtWork:
        lines = [{"mark": "warn", "text": "Some of the jobs are left. Go on to take the rest."}]
        headline, is_left = "Still at work", True
    values = {
        "headline": headline,
        "lines": lines,
        "back": _back(visit, meant),
        "again": again,
        "record": record,
        "is_left": is_left,
        "answer": answer,
        "token": form.get("token", ""),
        "typed": form.get("typed", ""),
    }
    return Shown(template="acted.html", title=headline, values=values)


async def _ask_pod(visit: Visit, meant: Meant) -> tuple[list[dict[str, str]], str, str]:
    """Ask the pod. Return lines, what else the pod has said, and the headline."""
    method = getattr(visit.operator, meant.deed.operation)
    found: PodRequestView = await _bounded(method(meant.value("name")))
    is_answered = found.state is RequestState.ANSWERED
    mark = "good" if is_answered and found.done else "warn"
    lines = [{"mark": mark, "text": found.summary}]
    if found.verb is not PodVerb.STACKS and found.answer:
        lines.append({"mark": mark, "text": found.answer})
    stacks = found.answer if found.verb is PodVerb.STACKS else ""
    return lines, stacks, "The pod has answered" if is_answered else "No answer"


def _good(meant: Meant) -> dict[str, str]:
    return {"mark": "good", "text": f"{meant.deed.label}: {meant.label}"}


class _StillAtWork(Exception):
    """An action on many takes longer than a page waits."""


async def _apply(visit: Visit, meant: Meant, form: Mapping[str, str]) -> ActionView | None:
    """Do the deed. The record of an action on many is returned."""
    deed = meant.deed
    if not deed.verb:
        method = getattr(visit.operator, deed.operation)
        done: object = await _bounded(method(*meant.names, *same.edit_of(meant)))
        if deed.operation == "undo_action" and isinstance(done, ActionView) and done.verb in VERBS:
            return done
        return None
    token = form.get("token", "")
    ticket = read_token(token)
    if ticket.verb != deed.operation:
        raise InvalidInput("token", "is of another action", "use the form of this page")
    typed = form.get("typed", "").strip().replace(",", "")
    if ticket.count > TYPED_ABOVE and typed != str(ticket.count):
        raise InvalidInput(
            "typed", "is not the number of jobs that match", f"type {number(ticket.count)}"
        )
    reason = form.get("reason", "").replace("\0", "").strip()
    return await _bounded(visit.operator.apply_action(Apply(token=token, reason=reason)))


async def _bounded(call: Awaitable[R]) -> R:
    try:
        async with asyncio.timeout(LONGEST):
            return await call
    except TimeoutError:
        raise _StillAtWork from None


def outcome(deed: Deed, action: ActionView) -> list[dict[str, str]]:
    """Return what has become of the jobs of an action, a line each."""
    lines = []
    if action.changed or not action.requested:
        noun = "job" if action.changed == 1 else "jobs"
        mark = "good" if action.changed else "warn"
        lines.append({"mark": mark, "text": f"{number(action.changed)} {noun} {deed.past}"})
    if action.requested:
        text = f"{number(action.requested)} running asked to stop"
        lines.append({"mark": "good", "text": text})
    refused: Counter[Refusal] = Counter()
    for part in action.parts:
        refused.update(part.refused)
    for reason, count in refused.items():
        text = f"{number(count)} left alone: {REASONS[reason]}"
        lines.append({"mark": "warn", "text": text})
    if action.silent:
        text = f"no answer from queues: {', '.join(action.silent)}"
        lines.append({"mark": "warn", "text": text})
    return lines
