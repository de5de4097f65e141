"""The pages of pods and of the store."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from forge_jobs.errors import Forbidden, NotFound, PartlyUnavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.processes import WorkerState
from forge_jobs.model.progress import JobState
from forge_jobs.operating.access import Right
from forge_jobs.operating.health.examining import examine
from forge_jobs.operating.health.findings import Finding
from forge_jobs.operating.health.stores import CallsView, facts_of, store_view
from forge_jobs.operating.pods.documents import PodRequestView
from forge_jobs.web.pages.charts.gauges import (
    SPANS,
    gauge_charts,
    of_pod,
    span_of_pod,
    usual_runs,
)
from forge_jobs.web.pages.deeds import POD_DEEDS, allowed
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.past.views import pods_page_then


async def pods_page(visit: Visit) -> Shown:
    """Show all pods, the silent ones first."""
    if visit.parameter("at"):
        return await pods_page_then(visit)
    pods = (await visit.operator.list_pods()).pods
    order = {"lost": 0, "draining": 1, "quiet": 2, "live": 3}
    standing = Counter(pod.standing for pod in pods)
    live = Counter(pod.pod.version for pod in pods if pod.standing == "live")
    parts = [f"{standing['live']} {'pod' if standing['live'] == 1 else 'pods'} live"]
    parts += [f"{standing['draining']} draining"] if standing["draining"] else []
    parts += [f"{standing['quiet']} quiet"] if standing["quiet"] else []
    parts += [f"{standing['lost']} silent"] if standing["lost"] else []
    return Shown(
        template="pods.html",
        title="Pods",
        commands=("forge-jobs pods list",),
        values={
            "pods": sorted(pods, key=lambda pod: (order[pod.standing], pod.pod.label)),
            "headline": ", ".join(parts).capitalize(),
            "versions": sorted(live.items()),
        },
    )


async def pod_page(visit: Visit) -> Shown:
    """Show one pod and what runs there."""
    host_id = visit.name("host_id")
    found = {each.pod.host_id: each for each in (await visit.operator.list_pods()).pods}
    pod = next((each for key, each in found.items() if key == host_id), None)
    if pod is None:
        raise NotFound(f"there is no pod {host_id!r}; the store forgets pods that have ended")
    workers = await visit.storage.procs.workers(pod.pod.host_id)
    runs = [each for each in workers if visit.actor.sees(each.queue)]
    access = visit.actor.access
    asked: Sequence[PodRequestView] = ()
    if access.has(Right.QUEUES):
        asked = (await visit.operator.pod_requests(host_id)).requests
    fitting = {"live": ("show_stacks", "quiet_pod", "stop_pod"), "draining": ("show_stacks",)}
    fitting["quiet"] = ("show_stacks", "resume_pod", "stop_pod")
    names = fitting.get(pod.standing, ()) if access.queues is None else ()
    span = span_of_pod(visit.parameter("over"), visit.now)
    minutes = await visit.storage.procs.gauges(span.since, span.until + MINUTE)
    return Shown(
        template="pod.html",
        title=pod.pod.label or host_id[-6:],
        commands=("forge-jobs pods list", f"forge-jobs pods requests {host_id}"),
        values={
            "pod": pod,
            "runs": await _runs(visit, sorted(runs, key=lambda each: each.started_at)),
            "charts": gauge_charts(span, of_pod(minutes, pod.pod.host_id)),
            "spans": [(name, name == span.name) for name in SPANS],
            "deeds": allowed(access, POD_DEEDS, names),
            "asked": asked,
            "may_cancel": access.allows("cancel_jobs"),
        },
    )


async def _runs(visit: Visit, workers: Sequence[WorkerState]) -> list[dict[str, Any]]:
    """Return the running jobs with their progress, and how long their kinds usually run."""
    usual = await usual_runs(
        visit.storage, visit.now, {(each.queue, each.kind) for each in workers}
    )
    states: Mapping[JobId, JobState] = {}
    if workers:
        try:
            states = await visit.storage.jobs.states([each.job_id for each in workers])
        except PartlyUnavailable as error:
            states = error.found
    found = []
    for each in workers:
        state = states.get(each.job_id)
        longest = usual.get((each.queue, each.kind))
        ran = visit.now - each.started_at
        found.append(
            {
                "run": each,
                "ran": ran,
                "usual": longest,
                "is_long": longest is not None and ran.total_seconds() > max(longest, 1),
                "share": state.progress.fraction if state and state.progress else None,
            }
        )
    return found


async def store_page(visit: Visit) -> Shown:
    """Show the store: how it is, and what the doctor finds, by the readings of all pages."""
    storage, reader = visit.storage, visit.reader
    findings: Sequence[Finding] = ()
    facts: list[tuple[str, str]] = []
    calls: tuple[CallsView, ...] = ()
    try:
        visit.actor.need(Right.READ)
        visit.actor.need(Right.QUEUES)
        findings = await examine(reader)
        pods = (await reader.fleet()).pods
        store = store_view(storage, await reader.report(), pods)
        facts, calls = facts_of(store), store.calls
    except Forbidden:
        pass
    worst = {"fail": 0, "warn": 1, "ok": 2}
    bad = sum(each.state == "fail" for each in findings)
    health = storage.health()
    said = "something must be put right" if bad or health.problem else "well"
    return Shown(
        template="store.html",
        title="Store",
        commands=("forge-jobs doctor", "forge-jobs store"),
        values={
            "headline": f"{storage.server or storage.name}: {said}",
            "durability": storage.durability,
            "facts": facts,
            "calls": calls,
            "health": health,
            "findings": sorted(findings, key=lambda each: worst[each.state]),
        },
    )
