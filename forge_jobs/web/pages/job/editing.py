"""The form that edits a job: checked by the server, and what was typed stays."""

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from forge_jobs.durations import format_duration
from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.model.jobs import ACTIVE, JobStatus
from forge_jobs.model.payloads import check_json_text
from forge_jobs.operating.access import Access
from forge_jobs.operating.actions.editing import EDIT_JOB, JobEdit
from forge_jobs.operating.documents import plain
from forge_jobs.operating.jobs.documents import JobView
from forge_jobs.web.pages.forms.elsewhere import arguments, curl, flag
from forge_jobs.web.pages.forms.fields import READERS, Field, as_typed, text_in
from forge_jobs.web.pages.forms.sending import form_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import pretty


def may_edit(access: Access, status: JobStatus) -> bool:
    """Return whether the page of a job offers the edit."""
    waits = status in ACTIVE and status is not JobStatus.IN_PROGRESS
    return waits and access.allows(EDIT_JOB)


async def edit_page(visit: Visit) -> Shown:
    """Show the form, the same as command, request and code, or apply what was typed."""
    visit.actor.act(EDIT_JOB)
    job = await visit.operator.get_job(visit.name("job_id"))
    shown = _fields(job, is_whole=visit.actor.access.payloads)
    if visit.request.method != "POST":
        return _form(visit, job, shown, version=job.version)
    typed = await form_of(visit.request)
    version = typed.get("version", "")
    reason = typed.get("reason", "").replace("\0", "").strip()
    kept = [as_typed(each, typed, None) for each in shown]
    try:
        changed = _changed(typed, shown)
        if "show" in typed:
            same = _elsewhere(visit, job.id, changed, version=version, reason=reason)
            return _form(visit, job, kept, version=version, reason=reason, same=same)
        edit = JobEdit(**changed, version=version, reason=reason)
        action = await visit.operator.edit_job(job.id, edit)
    except InvalidInput as error:
        kept = [as_typed(each, typed, error) for each in shown]
        beside = "" if any(each.problem for each in kept) else str(error)
        return _form(visit, job, kept, version=version, reason=reason, said=beside)
    except Conflict as error:
        return _form(visit, job, kept, version=version, reason=reason, said=str(error))
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
    visit: Visit,
    job: JobView,
    fields: list[Field],
    *,
    version: str,
    reason: str = "",
    said: str = "",
    same: tuple[str, ...] = (),
) -> Shown:
    return Shown(
        template="edit.html",
        title=f"Edit {job.kind}",
        commands=(f"forge-jobs jobs edit {job.id}",),
        values={
            "job": job,
            "fields": fields,
            "seen": version,
            "reason": reason,
            "said": said,
            "same": same,
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


def _elsewhere(
    visit: Visit, job_id: str, changed: Mapping[str, Any], *, version: str, reason: str
) -> tuple[str, ...]:
    """Return the command, the request and the line of Python that edit the same version.

    :raises InvalidInput: nothing is changed, or the payload is no JSON
    """
    if not changed:
        raise InvalidInput("edit", "changes nothing", "give another value")
    if "payload" in changed:
        check_json_text("payload", bytes(changed["payload"]).decode())
    about = {name: text for name, text in (("version", version), ("reason", reason)) if text}
    values = {**changed, **about}
    words = ["forge-jobs", "jobs", "edit", job_id]
    for name, value in values.items():
        words += flag(name, value)
    body = {name: plain(value) for name, value in values.items()}
    return (
        shlex.join(words),
        curl(visit, "PATCH", link("", "jobs", job_id), body),
        f"await operator.edit_job({job_id!r}, JobEdit({arguments(values)}))",
    )
