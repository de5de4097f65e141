"""Actions: a page that says what would happen, and the deed."""

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.requests import Request

from forge_jobs.errors import Conflict, Forbidden, InvalidInput, NotFound
from forge_jobs.model.filters import REFUSED, JobFilter, JobSummary, Refusal
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.queries.answers import as_filter
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.operating.documents import Changed
from forge_jobs.operating.operations import API, BY_NAME
from forge_jobs.operating.queues import QueueEdit
from forge_jobs.operating.schedules import ScheduleEdit
from forge_jobs.web.pages.deeds import DEEDS, Deed
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import number
from forge_jobs.web.problems import Refused

_SAMPLES = 10
_PAGES, _PAGE = 5, 1_000
_TYPED_ABOVE = 1_000

_REASONS: Mapping[Refusal, str] = {
    Refusal.NOT_FOUND: "there is no such job",
    Refusal.RUNNING: "they run",
    Refusal.FINISHED: "they have ended",
    Refusal.WAITING: "they wait already, or for others",
    Refusal.KEY_TAKEN: "another active job has their unique key",
    Refusal.PARENT_FAILED: "a job before them is gone and had not succeeded",
    Refusal.LOCKED: "an open transaction holds them",
    Refusal.SILENT: "a part of the store does not answer",
    Refusal.REFERENCED: "a foreign key or trigger of yours refuses",
}


class _Meant(Struct, frozen=True, kw_only=True):
    """The things that a deed is for: the parameters of the page's address.

    :param fields: all parameters, to send them again
    """

    deed: Deed
    fields: tuple[tuple[str, str], ...]

    def value(self, key: str) -> str:
        """Return the first value of a parameter, "" without one."""
        return next((value for name, value in self.fields if name == key), "")

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the jobs that were picked."""
        return tuple(value for name, value in self.fields if name == "id")


def _meant(visit: Visit) -> _Meant:
    deed = DEEDS.get(visit.name("operation"))
    if deed is None:
        raise NotFound("there is no such action")
    if not visit.actor.access.allows(deed.operation):
        raise Forbidden(visit.actor.name, deed.operation)
    fields = tuple(visit.request.query_params.multi_items())
    return _Meant(deed=deed, fields=fields)


def _which(meant: _Meant, visit: Visit) -> JobFilter:
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
    return _preview_of_name(visit, meant)


# -- previews ------------------------------------------------------------------------------------


async def _preview_of_jobs(visit: Visit, meant: _Meant) -> Shown:
    deed = meant.deed
    which = _which(meant, visit)
    jobs, is_more = await _look(visit, which)
    rule = REFUSED[deed.verb]
    fitting = [job for job in jobs if rule.refusal(job.status, job.hold) is None]
    refusals = Counter(
        refusal for job in jobs if (refusal := rule.refusal(job.status, job.hold)) is not None
    )
    count = f"{number(len(fitting))}{'+' if is_more else ''}"
    noun = "job" if count == "1" else "jobs"
    typed = count if len(fitting) > _TYPED_ABOVE else ""
    return _preview(
        visit,
        meant,
        headline=f"{deed.label} {count} {noun}",
        button=f"{deed.label} {count} {noun}",
        can_apply=bool(fitting),
        jobs=fitting[:_SAMPLES],
        hits=len(fitting),
        refused=[(_REASONS[each], count) for each, count in refusals.items()],
        typed=typed,
    )


async def _look(visit: Visit, which: JobFilter) -> tuple[list[JobSummary], bool]:
    """Return matching jobs up to a bound, and whether there are more."""
    found: list[JobSummary] = []
    cursor = None
    for _ in range(_PAGES):
        page = await visit.operator.list_jobs(which, cursor=cursor, limit=_PAGE)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found, False
    return found, True


def _preview_of_name(visit: Visit, meant: _Meant) -> Shown:
    name = meant.value("name")
    changes = {key: value for key, value in meant.fields if key != "name"}
    said = "".join(f", {key.replace('_', ' ')} {value}" for key, value in changes.items())
    return _preview(
        visit,
        meant,
        headline=f"{meant.deed.label} {name}{said}",
        button=f"{meant.deed.label} {name}",
        can_apply=True,
        jobs=None,
        hits=0,
        refused=[],
        typed="",
    )


def _preview(visit: Visit, meant: _Meant, **values: Any) -> Shown:
    return Shown(
        template="act.html",
        title=meant.deed.label,
        values={
            "problem": "",
            "consequence": meant.deed.consequence,
            "danger": meant.deed.danger,
            "fields": [],
            "same": _command(meant),
            "curl": _curl(meant, visit.request),
            "back": _back(visit, meant),
            **values,
        },
    )


def _command(meant: _Meant) -> str:
    """Return the command that does the same."""
    words = ["forge-jobs", *BY_NAME[meant.deed.operation].command.split()]
    if meant.deed.verb:
        q = meant.value("q")
        words += meant.ids or ("--where", q, "--all-matching")
    else:
        words.append(meant.value("name"))
        for key, value in meant.fields:
            if key != "name":
                words += [f"--{key.replace('_', '-')}", value]
    return shlex.join(words)


def _curl(meant: _Meant, request: Request) -> str:
    """Return the request that does the same."""
    method, _, route = BY_NAME[meant.deed.operation].http.partition(" ")
    body: dict[str, Any] = {}
    if meant.deed.verb:
        body = {"ids": list(meant.ids)} if meant.ids else {"q": meant.value("q")}
    else:
        route = route.replace("/{name}", link("", meant.value("name")))
        body = {key: _typed(value) for key, value in meant.fields if key != "name"}
    root = request.scope.get("root_path", "")
    words = ["curl", "-X", method, f"http://{request.url.netloc}{root}{API}{route}"]
    words += ["-H", "Authorization: Bearer TOKEN"]
    if body:
        content = msgspec.json.encode(body).decode()
        words += ["-H", "Content-Type: application/json", "-d", content]
    return shlex.join(words)


def _typed(value: str) -> Any:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value


def _back(visit: Visit, meant: _Meant) -> str:
    root = visit.request.scope.get("root_path", "")
    operation = meant.deed.operation
    if meant.deed.verb:
        if len(meant.ids) == 1:
            return link(root, "jobs", meant.ids[0])
        return link(root, "jobs", q=meant.value("q"))
    if operation.endswith("limit"):
        return link(root, "limits")
    is_gone = operation.startswith("delete")
    place = "cron" if operation.endswith("schedule") else "queues"
    return link(root, place) if is_gone else link(root, place, meant.value("name"))


# -- deeds ---------------------------------------------------------------------------------------


async def _done(visit: Visit, meant: _Meant) -> Shown:
    form = await _form(visit.request)
    try:
        lines = await _apply(visit, meant, form)
        headline = "Done"
    except (Conflict, InvalidInput, NotFound) as error:
        lines = [{"mark": "bad", "text": str(error)}]
        headline = "Nothing was changed"
    return Shown(
        template="acted.html",
        title=headline,
        values={"headline": headline, "lines": lines, "back": _back(visit, meant)},
    )


async def _form(request: Request) -> dict[str, str]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await request.body()
    if content and media != "application/x-www-form-urlencoded":
        raise Refused(415, "wrong-media-type", "the body is no form", "use the page's own form")
    return dict(parse_qsl(content.decode("utf-8", "replace"), max_num_fields=100))


async def _apply(visit: Visit, meant: _Meant, form: Mapping[str, str]) -> list[dict[str, str]]:
    deed = meant.deed
    method = getattr(visit.operator, deed.operation)
    if not deed.verb:
        await method(meant.value("name"), *_edit(meant))
        return [{"mark": "good", "text": f"{deed.label}: {meant.value('name')}"}]
    which = _which(meant, visit)
    jobs, is_more = await _look(visit, which)
    rule = REFUSED[deed.verb]
    fitting = sum(rule.refusal(job.status, job.hold) is None for job in jobs)
    count = f"{number(fitting)}{'+' if is_more else ''}"
    if fitting > _TYPED_ABOVE and form.get("typed", "").strip() not in (count, str(fitting)):
        raise InvalidInput("typed", "is not the number of jobs", f"type {count}")
    return _outcome(deed, await method(which))


def _edit(meant: _Meant) -> list[Any]:
    """Return the edit of a deed that changes settings.

    :raises InvalidInput: a value is wrong
    """
    operation = meant.deed.operation
    if operation == "set_queue":
        text = meant.value("max_workers")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidInput("max_workers", f"is {text[:40]!r}", "give a whole number")
        return [QueueEdit(max_workers=int(text))]
    if operation == "set_schedule":
        return [ScheduleEdit(expression=meant.value("expression"))]
    return []


def _outcome(deed: Deed, changed: Changed) -> list[dict[str, str]]:
    done, asked = len(changed.changed), len(changed.requested)
    lines = []
    if done or not asked:
        noun = "job" if done == 1 else "jobs"
        mark = "good" if done else "warn"
        lines.append({"mark": mark, "text": f"{number(done)} {noun} {deed.past}"})
    if asked:
        lines.append({"mark": "good", "text": f"{number(asked)} running asked to stop"})
    for reason, count in Counter(changed.refused.values()).items():
        lines.append({"mark": "warn", "text": f"{number(count)} left alone: {_REASONS[reason]}"})
    return lines
