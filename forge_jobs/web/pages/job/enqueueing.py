"""The form that enqueues a job: of a kind that pods have described, of any other, or as a copy."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Raw, json
from ulid import ULID

from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.names import command_line
from forge_jobs.model.payloads import check_json_text
from forge_jobs.operating.documents import plain
from forge_jobs.operating.kinds.documents import KindView
from forge_jobs.web.pages.forms.elsewhere import curl, flag
from forge_jobs.web.pages.forms.fields import READERS, Field, as_typed, length_in, text_in
from forge_jobs.web.pages.forms.sending import form_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import pretty

_SKELETONS: Mapping[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
}
"""Values of a new payload that have to be given, by the type in the schema."""

_LINKED = 200


async def enqueue_page(visit: Visit) -> Shown:
    """Show the kinds, or the form of one, or enqueue what was typed."""
    visit.actor.act("enqueue")
    if visit.request.method == "POST":
        return await _enqueue(visit, await form_of(visit.request))
    start = {"kind": visit.parameter("kind"), "id": str(ULID())}
    if visit.parameter("copy"):
        job = await visit.operator.get_job(visit.parameter("copy"))
        start |= {
            "kind": job.kind,
            "queue": job.queue,
            "priority": str(job.priority),
            "tags": ", ".join(job.tags),
            "payload": pretty(job.payload) if visit.actor.access.payloads else "{}",
        }
        if job.is_hidden:
            return await _form(visit, start, said=InvalidInput(
                "payload", "has hidden fields, shown as ***", "write these out",
            ))  # fmt: skip
    return await _form(visit, start)


async def _form(
    visit: Visit,
    typed: Mapping[str, str],
    said: InvalidInput | Conflict | None = None,
    same: tuple[str, ...] = (),
) -> Shown:
    known = (await visit.operator.list_kinds()).kinds
    kind = await _described(visit, typed["kind"])
    wrong = said if isinstance(said, InvalidInput) else None
    fields = [as_typed(each, typed, wrong) for each in _fields(kind)]
    beside = "" if said is None or any(each.problem for each in fields) else str(said)
    return Shown(
        template="enqueue.html",
        title="Enqueue a job",
        commands=("forge-jobs kinds --stored",),
        values={
            "kinds": known[:_LINKED],
            "chosen": typed["kind"],
            "described": kind,
            "lines": _lines(kind) if kind else [],
            "fields": fields,
            "job_id": typed.get("id") or str(ULID()),
            "said": beside,
            "same": same,
        },
    )


async def _described(visit: Visit, name: str) -> KindView | None:
    try:
        return await visit.operator.get_kind(name) if name else None
    except NotFound:
        return None


def _fields(kind: KindView | None) -> list[Field]:
    queue = "" if kind is None or kind.queue is None else kind.queue
    payload = "{}" if kind is None else pretty(json.encode(_skeleton(kind)).decode())
    priority = "" if kind is None or not kind.priority else str(kind.priority)
    own = "Empty for the one of the kind."
    return [
        Field(name="payload", label="Payload", text=payload, is_long=True, hint="A JSON object."),
        Field(name="queue", label="Queue", text=queue, hint=own),
        Field(name="delay", label="Due in", text="", hint="As 90s or 2h. Empty for now."),
        Field(name="priority", label="Priority", text=priority, hint=f"Lower first. {own}"),
        Field(name="tags", label="Tags", text="", hint="With commas between."),
    ]


async def _enqueue(visit: Visit, typed: dict[str, str]) -> Shown:
    typed = {"kind": "", **{name: text_in(text) for name, text in typed.items()}}
    try:
        if "show" in typed:
            check_json_text("payload", typed.get("payload") or "{}")
            return await _form(visit, typed, same=_elsewhere(visit, typed))
        outcome = await visit.operator.enqueue(_request(typed))
    except (InvalidInput, Conflict) as error:
        return await _form(visit, typed, said=error)
    text = "The job is stored."
    if outcome.deduplicated:
        text = "Nothing new: this job has the unique key."
    values = {
        "headline": "Nothing enqueued" if outcome.deduplicated else "Enqueued",
        "answer": "",
        "lines": [{"mark": "warn" if outcome.deduplicated else "good", "text": text}],
        "back": link(visit.root, "jobs", outcome.job_id),
        "again": "",
        "record": "",
        "is_left": False,
        "token": "",
        "typed": "",
    }
    return Shown(template="acted.html", title="Enqueued", values=values)


def _elsewhere(visit: Visit, typed: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command, the request and the line of Python that enqueue the same."""
    kind, payload, options = typed["kind"], typed.get("payload") or "{}", _options(typed)
    words = [f"--payload={payload}"]
    for name, value in options.items():
        words += flag(name, value)
    body: dict[str, Any] = {"kind": kind, "payload": Raw(payload.encode("utf-8", "replace"))}
    said = "".join(
        f", {name}={value.total_seconds():g}"
        if isinstance(value, timedelta)
        else f", {name}={value!r}"
        for name, value in options.items()
    )
    return (
        command_line("enqueue", kind, options=words),
        curl(visit, "POST", "/jobs", body | {key: plain(each) for key, each in options.items()}),
        f"await operator.enqueue(EnqueueRequest({kind!r}, {payload!r}{said}))",
    )


def _request(typed: Mapping[str, str]) -> EnqueueRequest[Any]:
    """Return the request of a form.

    :raises InvalidInput: names the field
    """
    return EnqueueRequest(typed["kind"], typed.get("payload") or "{}", **_options(typed))


def _options(typed: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"id": typed["id"]} if typed.get("id") else {}
    if queue := typed.get("queue"):
        options["queue"] = queue
    if delay := typed.get("delay"):
        options["delay"] = length_in(delay, "delay")
    for name in ("priority", "tags"):
        if text := typed.get(name):
            options[name] = READERS[name](text)
    return options


def _skeleton(kind: KindView) -> dict[str, Any]:
    """Return a payload with the values that have to be given, and the defaults of others."""
    schema = kind.payload_schema
    required = schema.get("required", ())
    found: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        if "default" in part:
            found[name] = part["default"]
        elif name in required:
            found[name] = _value(part)
    return found


def _value(part: Mapping[str, Any]) -> Any:
    if choices := part.get("enum"):
        return choices[0]
    form = part.get("type")
    first = form[0] if isinstance(form, list) and form else form
    return _SKELETONS.get(first if isinstance(first, str) else "")


def _lines(kind: KindView) -> list[dict[str, str]]:
    """Return the fields of the payload in words."""
    required = kind.payload_schema.get("required", ())
    return [
        {
            "name": name,
            "form": _form_of(part),
            "about": str(part.get("description", "")),
            "need": "required" if name in required else f"default {_short(part.get('default'))}",
            "is_secret": "secret" if part.get("writeOnly") else "",
        }
        for name, part in kind.payload_schema.get("properties", {}).items()
    ]


def _form_of(part: Mapping[str, Any]) -> str:
    if choices := part.get("enum"):
        return " or ".join(json.encode(each).decode() for each in choices[:8])
    if several := part.get("anyOf"):
        return " or ".join(_form_of(each) for each in several[:4])
    if reference := part.get("$ref"):
        return str(reference).rpartition("/")[2]
    form = part.get("type", "any value")
    words = " or ".join(form) if isinstance(form, list) else str(form)
    kept = part.get("format")
    return f"{words}, {kept}" if kept else words


def _short(value: Any) -> str:
    return json.encode(value).decode()[:40]
