"""The form that edits a job: checked by the server, and what was typed stays."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.durations import format_duration, parse_duration
from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.model.jobs import ACTIVE, JobStatus
from forge_jobs.operating.access import Access
from forge_jobs.operating.actions.editing import EDIT_JOB, JobEdit
from forge_jobs.operating.jobs.documents import JobView
from forge_jobs.web.pages.acting import form_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import pretty


class Field(Struct, frozen=True, kw_only=True):
    """A field of the form.

    :param text: as the form shows the value. "" for none
    """

    name: str
    label: str
    text: str
    hint: str = ""
    is_long: bool = False
    problem: str = ""


def may_edit(access: Access, status: JobStatus) -> bool:
    """Return whether the page of a job offers the edit."""
    waits = status in ACTIVE and status is not JobStatus.IN_PROGRESS
    return waits and access.allows(EDIT_JOB)


async def edit_page(visit: Visit) -> Shown:
    """Show the form, or apply what was typed."""
    visit.actor.act(EDIT_JOB)
    job = await visit.operator.get_job(visit.name("job_id"))
    shown = _fields(job, is_whole=visit.actor.access.payloads)
    if visit.request.method != "POST":
        return _form(visit, job, shown, version=job.version)
    typed = await form_of(visit.request)
    version = typed.get("version", "")
    try:
        edit = JobEdit(
            **_changed(typed, shown), version=version, reason=typed.get("reason", "").strip()
        )
        action = await visit.operator.edit_job(job.id, edit)
    except InvalidInput as error:
        kept = [as_typed(each, typed, error) for each in shown]
        beside = "" if any(each.problem for each in kept) else str(error)
        return _form(visit, job, kept, version=version, said=beside)
    except Conflict as error:
        kept = [as_typed(each, typed, None) for each in shown]
        return _form(visit, job, kept, version=version, said=str(error))
    values = {
        "headline": "Done",
        "answer": "",
        "lines": [{"mark": "good", "text": "The job has the new content."}],
        "back": link(visit.root, "jobs", job.id),
        "again": "",
        "record": action.id,
        "is_left": False,
        "token": "",
        "typed": "",
    }
    return Shown(template="acted.html", title="Edited", values=values)


def _form(
    visit: Visit, job: JobView, fields: list[Field], *, version: str, said: str = ""
) -> Shown:
    return Shown(
        template="edit.html",
        title=f"Edit {job.kind}",
        command=f"forge-jobs jobs edit {job.id}",
        values={
            "job": job,
            "fields": fields,
            "seen": version,
            "said": said,
            "is_open": may_edit(visit.actor.access, job.status),
        },
    )


def _fields(job: JobView, *, is_whole: bool) -> list[Field]:
    attempts = "" if job.max_attempts is None else str(job.max_attempts)
    fields = [
        Field(name="priority", label="Priority", text=str(job.priority), hint="Lower first."),
        Field(
            name="due_at",
            label="Due",
            text=job.due_at.isoformat(),
            hint="An instant with an offset. One that has passed means now.",
        ),
        Field(
            name="expires_at",
            label="Expires",
            text="" if job.expires_at is None else job.expires_at.isoformat(),
            hint="An instant with an offset. Empty for never.",
        ),
        Field(
            name="max_attempts", label="Attempts", text=attempts, hint="Empty for without a bound."
        ),
        Field(
            name="timeout",
            label="Time limit of a run",
            text="" if job.timeout is None else format_duration(job.timeout),
            hint="As 90s or 1h30m. Empty for none.",
        ),
        Field(name="tags", label="Tags", text=", ".join(job.tags), hint="With commas between."),
    ]
    if is_whole:
        metadata = msgspec.json.encode(job.metadata).decode()
        fields.append(Field(name="metadata", label="Metadata", text=metadata, is_long=True))
        hint = "Where a secret is shown as *** and left so, the secret stays."
        payload = Field(
            name="payload", label="Payload", text=pretty(job.payload), hint=hint, is_long=True
        )
        fields.append(payload)
    return fields


def as_typed(field: Field, typed: Mapping[str, str], error: InvalidInput | None) -> Field:
    """Return the field with what was typed, and what is wrong with that."""
    problem = ""
    # A part of the payload is named as payload.name.
    if error is not None and re.split(r"[.\[]", error.field, maxsplit=1)[0] == field.name:
        where = error.field.removeprefix(field.name).lstrip(".")
        problem = f"{where} {error.problem}; {error.fix}".lstrip()
    return msgspec.structs.replace(
        field, text=text_in(typed.get(field.name, field.text)), problem=problem
    )


def text_in(typed: str) -> str:
    """Return what was typed, without the line ends of forms."""
    return typed.replace("\r\n", "\n").strip()


def _changed(typed: Mapping[str, str], shown: list[Field]) -> dict[str, Any]:
    """Return the values of the fields that a person has changed.

    :raises InvalidInput: names the field
    """
    texts = {each.name: text_in(typed.get(each.name, each.text)) for each in shown}
    return {
        each.name: READERS[each.name](texts[each.name])
        for each in shown
        if texts[each.name] != each.text.strip()
    }


def _number(name: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InvalidInput(name, f"is {text[:40]!r}", "give a whole number")
    return int(text)


def _instant(name: str, text: str) -> datetime:
    fix = "give one like 2026-01-31T18:00:00Z or 2026-01-31T18:00:00+02:00"
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(name, f"is {text[:40]!r}, not an instant", fix) from None


def length_in(text: str, name: str = "timeout") -> timedelta:
    """Return the duration of a text.

    :raises InvalidInput: names the field
    """
    try:
        return parse_duration(text)
    except (ValueError, OverflowError) as error:
        problem, _, fix = str(error).partition("; ")
        raise InvalidInput(name, problem, fix or "give one like 90s") from None


def _texts(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidInput("metadata", "is no object of texts", 'give {"key":"text"}') from None


READERS: dict[str, Any] = {
    "priority": lambda text: _number("priority", text),
    "due_at": lambda text: _instant("due_at", text),
    "expires_at": lambda text: _instant("expires_at", text) if text else None,
    "max_attempts": lambda text: _number("max_attempts", text) if text else None,
    "timeout": lambda text: length_in(text) if text else None,
    "tags": lambda text: tuple(tag.strip() for tag in text.split(",") if tag.strip()),
    "metadata": _texts,
    "payload": lambda text: msgspec.Raw(text.encode("utf-8", "replace")),
}
