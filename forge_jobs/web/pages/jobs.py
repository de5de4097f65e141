"""The pages of jobs: the list with a filter, and one job."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.model.answering.filters import as_filter
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter, Page
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.jobs import TERMINAL, JobStatus
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queues import QueueCounts
from forge_jobs.operating.access import REVEAL_JOB, Right
from forge_jobs.operating.jobs.documents import JobKin, JobView
from forge_jobs.operating.together import together
from forge_jobs.operating.words import counted
from forge_jobs.web.pages import judged
from forge_jobs.web.pages.deeds import offered_for_jobs
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.job.code import as_command, as_python
from forge_jobs.web.pages.job.columns import KNOWN, USUAL, columns_of
from forge_jobs.web.pages.job.editing import may_edit
from forge_jobs.web.pages.job.family import LISTED, family_of
from forge_jobs.web.pages.job.life import strip_of
from forge_jobs.web.pages.words import pretty, term

_CHIPS = (
    ("Running", "status:in_progress", "in_progress"),
    ("Waiting", "status:pending", "pending"),
    ("Retrying", "status:failed", "failed"),
    ("Blocked", "status:blocked", "blocked"),
    ("Dead", "status:dead", "dead"),
    ("Cancelled", "status:cancelled", "cancelled"),
    ("Done", "status:done", "done"),
)
_STARTS = (
    "queue:", "kind:", "status:", "cause:", "tag:", "schedule:", "pod:", "key:", "id:", "group:",
    "attempt:>2", "crashes:>0", "running:>10m", "enqueued:<1h", "finished:<1h", "due:<1h",
    'error:"', "payload.",
)  # fmt: skip
"""Starts of the terms of the filter language."""

_PAGE = 50
_LINES = 200
_WORDS = 300
"""Completions of a page at most."""


async def jobs_page(visit: Visit) -> Shown:
    """Show the jobs that a line of the filter language selects."""
    q = visit.parameter("q").strip()
    problem: InvalidInput | None = None
    page: Page | None = None
    try:
        which = _filter(visit, q)
        page = await visit.operator.list_jobs(
            which, cursor=visit.parameter("cursor") or None, limit=_PAGE
        )
    except InvalidInput as error:
        problem = error
    shown: tuple[str, ...] = USUAL
    try:
        shown = columns_of(visit.request.query_params.getlist("columns"))
    except InvalidInput as error:
        problem = problem or error
    found = page.jobs if page else ()
    counts = await visit.reader.counts()
    mine = {queue: each for queue, each in counts.items() if visit.actor.sees(queue)}
    return Shown(
        template="jobs.html",
        title="Jobs",
        commands=(_command(visit, q),),
        values={
            "q": q,
            "problem": problem,
            "page": page,
            "known": KNOWN,
            "shown": shown,
            "columns": "" if shown == USUAL else ",".join(shown),
            "headline": _headline(page, q),
            "chips": _chips(mine),
            "may_enqueue": visit.actor.access.allows("enqueue"),
            "completions": await _completions(visit, mine),
            "verbs": offered_for_jobs(
                visit.actor.access, ((job.status, job.hold) for job in found)
            ),
        },
    )


def _filter(visit: Visit, q: str) -> JobFilter:
    """Return the filter of a line. An id alone stands for that job."""
    if len(q) == 26 and ":" not in q:
        return JobFilter(ids=(check_job_id(q, "q"),))
    return as_filter(parse_query(q), visit.now)


def _command(visit: Visit, q: str) -> str:
    """Return the command that lists the jobs of the page."""
    words = ["forge-jobs", "jobs", "list"]
    if q:
        words += ["--where", q if ":" in q else f"id:{q}"]
    if cursor := visit.parameter("cursor"):
        words += ["--cursor", cursor]
    return shlex.join(words)


def _headline(page: Page | None, q: str) -> str:
    if page is None:
        return "Jobs"
    count = len(page.jobs)
    more = "the newest " if page.cursor and count else ""
    noun = "job" if count == 1 and not more else "jobs"
    if count == 0:
        return "No jobs"
    return f"{more}{count} {noun}{' that match' if q else ''}".capitalize()


def _chips(counts: Mapping[str, QueueCounts]) -> list[dict[str, Any]]:
    return [
        {"name": name, "q": q, "count": counted(counts.values(), status)}
        for name, q, status in _CHIPS
    ]


async def _completions(visit: Visit, queues: Iterable[str]) -> list[str]:
    """Return words that complete a filter: starts of terms, and what could follow some."""
    words = [*_STARTS, *(f"status:{status}" for status in JobStatus)]
    words += [term("queue", queue) for queue in sorted(queues)]
    if visit.actor.access.has(Right.QUEUES):
        pods = (await visit.reader.fleet(judged.KNOWN)).pods
        words += [term("kind", kind) for kind in sorted({k for pod in pods for k in pod.pod.kinds})]
    return words[:_WORDS]


def _log_address(visit: Visit, job: JobView) -> str:
    """Return where lines to come are read. "": the job has ended, or the caller may not read."""
    if job.status in TERMINAL or not visit.actor.access.payloads:
        return ""
    return link(visit.root, "api", "v1", "jobs", job.id, "logs")


async def _kin(visit: Visit, job_id: str) -> JobKin | None:
    """Return the relatives of a job. None where their server is silent: the job is shown all the
    same."""
    try:
        return await visit.operator.job_kin(job_id, limit=LISTED)
    except Unavailable:
        return None


async def job_page(visit: Visit) -> Shown:
    """Show all of one job."""
    job_id = visit.name("job_id")
    job, why, life, kin, fleet = await together(
        visit.operator.get_job(job_id),
        visit.operator.explain_job(job_id),
        visit.operator.job_timeline(job_id),
        _kin(visit, job_id),
        visit.reader.fleet(),
    )
    log = None
    if visit.actor.access.payloads and job.attempt:
        log = await visit.operator.job_log(job_id, limit=_LINES)
    pods = {each.pod.host_id: each.pod.label for each in fleet.pods}
    return Shown(
        template="job.html",
        title=f"{job.kind} {job.id[-6:]}",
        commands=tuple(f"forge-jobs {each} {job.id}" for each in ("jobs show", "explain")),
        values={
            "job": job,
            "why": why,
            "log": log if log and log.lines else None,
            "log_address": _log_address(visit, job),
            "goes_on": job.status not in TERMINAL,
            "pod_name": pods.get(job.host_id) or job.host_id[-6:],
            "verbs": offered_for_jobs(visit.actor.access, [(job.status, job.hold)]),
            "may_reveal": job.is_hidden and visit.actor.access.allows(REVEAL_JOB),
            "may_enqueue": visit.actor.access.allows("enqueue"),
            "may_edit": may_edit(visit.actor.access, job.status),
            "payload": pretty(job.payload),
            "result": None if job.result is None else pretty(job.result),
            "strip": strip_of(life, visit.now),
            "life": life,
            "family": family_of(job, kin) if kin else None,
            "kin_silent": kin is None,
            "code": _code(visit, job),
            "group": next((each.error_group for each in reversed(job.errors)), ""),
            "pods": pods,
            "event_class": _event_class,
        },
    )


_EVENT_CLASS = {
    EventKind.STARTED: "run",
    EventKind.RETRIED: "bad",
    EventKind.CLAIM_LOST: "bad",
    EventKind.REVIVED: "bad",
    EventKind.OVERRAN: "bad",
}


def _event_class(event: TimelineEvent) -> str:
    if event.kind is EventKind.FINISHED:
        return "good" if event.detail.startswith("succeeded") else "bad"
    return _EVENT_CLASS.get(event.kind, "")


def _code(visit: Visit, job: JobView) -> tuple[str, ...]:
    """Return a copy of the job as code. Without the right to payloads there is none."""
    if not visit.actor.access.payloads or not job.payload.startswith("{"):
        return ()
    return as_command(job), as_python(job)
