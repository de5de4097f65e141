"""The pages of queues: the list, and one queue."""

from datetime import timedelta
from typing import Any

from forge_jobs.errors import NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.names import command_line
from forge_jobs.model.series import SeriesAsk
from forge_jobs.operating.access import Right
from forge_jobs.operating.settings.documents import QueueView
from forge_jobs.operating.settings.queues import read_queues
from forge_jobs.operating.snapshots.objectives import ObjectiveView
from forge_jobs.operating.together import together
from forge_jobs.operating.words import counted
from forge_jobs.policy.percentiles import percentile, total_seconds
from forge_jobs.web.pages.board import read_rows, with_objectives
from forge_jobs.web.pages.charts.figures import total
from forge_jobs.web.pages.charts.over_time import over_time
from forge_jobs.web.pages.charts.spans import span_of
from forge_jobs.web.pages.deeds import QUEUE_DEEDS, allowed
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.past.views import queues_then
from forge_jobs.web.pages.queue.outlook import FIELDS, outlook_of
from forge_jobs.web.pages.queue.settings import settings_of
from forge_jobs.web.pages.words import length, number, term

_ZERO = timedelta(0)
_DAY = timedelta(days=1)
_LISTED = 10
_KINDS_READ = 50
_COUNTED = (
    ("Retrying", "failed"),
    ("Blocked", "blocked"),
    ("Dead", "dead"),
    ("Done, kept", "done"),
)


def mark(queue: QueueView) -> str:
    """Return the class of the mark of a queue."""
    if queue.unreadable:
        return "bad"
    if queue.paused or queue.cooldown_remaining > _ZERO:
        return "warn"
    if queue.unserved:
        return "bad"
    return "good" if queue.pods else "idle"


async def queues_page(visit: Visit) -> Shown:
    """Show all queues, the worst first."""
    if visit.parameter("at"):
        return await queues_then(visit)
    rows = await read_rows(visit.reader, visit.actor)
    glance = await visit.judge.glance(visit.reader)
    rows = with_objectives(rows, glance.objectives)
    due, running = sum(row.due for row in rows), sum(row.running for row in rows)
    noun = "queue" if len(rows) == 1 else "queues"
    return Shown(
        template="queues.html",
        title="Queues",
        commands=("forge-jobs queues list",),
        values={
            "rows": rows,
            "headline": f"{len(rows)} {noun}: {number(running)} jobs run, {number(due)} are due",
        },
    )


async def queue_page(visit: Visit) -> Shown:
    """Show one queue: slots, flow, settings, and what waits."""
    name = visit.name("name")
    visit.actor.need(Right.READ)
    states = await visit.storage.config.queues()
    mine = [each for each in states if each.name == name and visit.actor.sees(name)]
    found = {each.name: each for each in await read_queues(visit.storage, mine)}
    queue = found.get(name)
    if queue is None:
        raise NotFound(f"there is no queue {name!r}; forge-jobs queues list names all")
    params = visit.request.query_params.items()
    given = {key: value for key, value in params if key not in ("at", *FIELDS)}
    waiting = JobFilter(queues=(name,), statuses=(JobStatus.PENDING, JobStatus.FAILED))
    (over, _), page, lines, outlook, kinds = await together(
        over_time(visit, span_of(given, visit.now), name),
        visit.operator.list_jobs(waiting, order="due", limit=_LISTED),
        visit.operator.queue_settings(name),
        outlook_of(visit, mine[0]),
        _kinds(visit, name),
    )
    objective = None
    if queue.settings.objective:
        stands = (await visit.operator.list_objectives()).objectives
        objective = next((each for each in stands if each.queue == name), None)
    return Shown(
        template="queue.html",
        title=name,
        commands=tuple(command_line(f"queues {verb}", name) for verb in ("settings", "history")),
        values={
            "queue": queue,
            "mark": mark,
            "sentence": _sentence(queue),
            "deeds": _deeds(visit, queue),
            "figures": _figures(visit, queue),
            **over,
            "outlook": outlook,
            "settings": settings_of(lines),
            "is_declared": lines.is_declared,
            "kinds": kinds,
            "objective": _objective(objective) if objective else None,
            "may_set": visit.actor.access.allows("set_queue"),
            "waiting": page.jobs,
        },
    )


def _sentence(queue: QueueView) -> str:
    pods = "no pod" if not queue.pods else "1 pod" if queue.pods == 1 else f"{queue.pods} pods"
    most = queue.settings.max_workers
    return (
        f"{queue.counts.running} of {most} slots are in use, {queue.granted} granted on {pods}. "
        f"Attempts of the last hour: p50 {length(queue.run.p50)}, p95 {length(queue.run.p95)}, "
        f"p99 {length(queue.run.p99)}; from due to the end p95 {length(queue.total.p95)}."
    )


def _objective(stands: ObjectiveView) -> dict[str, Any]:
    def share(met: float | None) -> str:
        return "no job" if met is None else f"{met:.2%}"

    burn = f"{stands.burn_5m:.3g} times in 5 min, {stands.burn_1h:.3g} in 1 h"
    return {
        "text": stands.objective,
        "pods": stands.desired.text,
        "is_burning": stands.is_burning,
        "figures": [
            ("Met in 1 h", share(stands.met_1h)),
            ("In 24 h", share(stands.met_24h)),
            ("In 30 d", share(stands.met_30d)),
            ("Budget left", f"{stands.budget_left:.0%}"),
            ("Burn", burn),
            ("Pods wanted", number(stands.desired.pods)),
        ],
    }


def _deeds(visit: Visit, queue: QueueView) -> Any:
    fitting = ["resume_queue" if queue.paused else "pause_queue"]
    if queue.cooldown_remaining > _ZERO:
        fitting.append("end_cooldown")
    ended = queue.counts.by_status
    if ended.get(JobStatus.DONE) or ended.get(JobStatus.CANCELLED):
        fitting.append("clean_up_queue")
    if not queue.pods and not sum(queue.counts.by_status.values()):
        fitting.append("delete_queue")
    return allowed(visit.actor.access, QUEUE_DEEDS, fitting)


def _figures(visit: Visit, queue: QueueView) -> list[dict[str, str]]:
    root = visit.request.scope.get("root_path", "")
    counts = queue.counts

    def listed(status: str) -> str:
        return link(root, "jobs", q=f"{term('queue', queue.name)} status:{status}")

    figures = [
        {"name": "Due", "value": number(counts.due), "href": listed("pending"), "live": "due"},
        {
            "name": "Oldest due",
            "value": length(counts.oldest_due_for),
            "href": "",
            "live": "oldest",
        },
        {
            "name": "Running",
            "value": number(counts.running),
            "href": listed("in_progress"),
            "live": "running",
        },
    ]
    return figures + [
        {"name": name, "value": counted([counts], status), "href": listed(status), "live": status}
        for name, status in _COUNTED
    ]


async def _kinds(visit: Visit, queue: str) -> list[dict[str, Any]]:
    """Return the kinds that took most time in the last day, in two calls."""
    totals = await visit.storage.jobs.flow_totals()
    known = sorted(
        (each for each in totals if each.queue == queue and each.kind),
        key=lambda each: -sum(each.counts.values()),
    )
    names = [each.kind for each in known[:_KINDS_READ]]
    if not names:
        return []
    since = (visit.now - _DAY).replace(minute=0, second=0, microsecond=0)
    asked = [
        SeriesAsk(since=since, until=visit.now + MINUTE, step=HOUR, queue=queue, kind=name)
        for name in names
    ]
    found: list[dict[str, Any]] = []
    for name, steps in zip(names, await visit.storage.jobs.many_series(asked), strict=True):
        runs = total(steps, lambda step: step.processing)
        if runs.counts:
            found.append(
                {
                    "kind": name,
                    "runs": sum(runs.counts.values()),
                    "seconds": total_seconds(runs),
                    "p50": percentile(runs, 0.5),
                    "p95": percentile(runs, 0.95),
                }
            )
    found.sort(key=lambda each: -each["seconds"])
    used = sum(each["seconds"] for each in found) or 1.0
    return [each | {"share": each["seconds"] / used} for each in found[:_LISTED]]
