"""The form that edits a schedule: payload by the schema of the kind, options and rules."""

from collections.abc import Mapping
from typing import Any

from forge_jobs.durations import format_duration
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.names import command_line
from forge_jobs.model.payloads import check_json_text
from forge_jobs.operating.documents import plain
from forge_jobs.operating.settings.documents import ScheduleView
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.web.pages.forms.elsewhere import arguments, curl, flag
from forge_jobs.web.pages.forms.fields import READERS, Field, as_typed, length_in, text_in
from forge_jobs.web.pages.forms.sending import form_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import pretty

_CATCH_UP = ("skip", "latest", "all")
_OVERLAP = ("allow", "skip")


async def edit_schedule_page(visit: Visit) -> Shown:
    """Show the form, the same as command, request and code, or apply what was typed."""
    visit.actor.act("set_schedule")
    name = visit.name("name")
    found = {each.spec.name: each for each in (await visit.operator.list_schedules()).schedules}
    each = found.get(name)
    if each is None:
        raise NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")
    shown = _fields(each, is_whole=visit.actor.access.payloads)
    if visit.request.method != "POST":
        return _form(visit, each, shown)
    typed = await form_of(visit.request)
    kept = [as_typed(field, typed, None) for field in shown]
    try:
        changed = _changed(kept, shown)
        if "show" in typed:
            return _form(visit, each, kept, same=_elsewhere(visit, name, changed))
        if typed.get("etag", "") != each.etag:
            problem, fix = (
                "was changed since you looked",
                "look at what is there now, and send again",
            )
            raise InvalidInput("schedule", problem, fix)
        await visit.operator.set_schedule(name, ScheduleEdit(**changed))
    except InvalidInput as error:
        kept = [as_typed(field, typed, error) for field in shown]
        beside = "" if any(field.problem for field in kept) else str(error)
        return _form(visit, each, kept, said=beside)
    values = {
        "headline": "Done",
        "answer": "",
        "lines": [{"mark": "good", "text": "The schedule is changed, also for later deploys."}],
        "back": link(visit.root, "cron", name),
        "again": "",
        "record": "",
        "is_left": False,
        "token": "",
        "typed": "",
    }
    return Shown(template="acted.html", title="Changed", values=values)


def _form(
    visit: Visit,
    each: ScheduleView,
    fields: list[Field],
    *,
    said: str = "",
    same: tuple[str, ...] = (),
) -> Shown:
    return Shown(
        template="schedule_edit.html",
        title=f"Edit {each.spec.name}",
        commands=(command_line("cron set", each.spec.name),),
        values={"each": each, "fields": fields, "said": said, "same": same},
    )


def _fields(each: ScheduleView, *, is_whole: bool) -> list[Field]:
    spec = each.spec
    attempts = "" if spec.max_attempts is None else str(spec.max_attempts)
    hint = "As 90s or 1h30m."
    fields = [
        Field(name="kind", label="Kind", text=spec.kind),
        Field(name="queue", label="Queue", text=spec.queue),
        Field(name="expression", label="Expression", text=spec.expression),
        Field(name="timezone", label="Time zone", text=spec.timezone),
        Field(name="priority", label="Priority", text=str(spec.priority), hint="Lower first."),
        Field(
            name="max_attempts", label="Attempts", text=attempts, hint="Empty for without a bound."
        ),
        Field(
            name="timeout",
            label="Time limit of a run",
            text="" if spec.timeout is None else format_duration(spec.timeout),
            hint=f"{hint} Empty for none.",
        ),
        Field(name="tags", label="Tags", text=", ".join(spec.tags), hint="With commas between."),
        Field(
            name="sequence_key",
            label="Sequence key",
            text="" if spec.sequence is None else spec.sequence.key,
            hint="Jobs of a key run one after the other. Empty for none.",
        ),
        Field(
            name="jitter",
            label="Jitter",
            text=format_duration(spec.jitter),
            hint="Each job is due later by a random part of this.",
        ),
        Field(
            name="catch_up",
            label="Missed ones",
            text=spec.catch_up,
            hint="skip, latest: the latest fires, or all: those within the window.",
        ),
        Field(name="window", label="Window", text=format_duration(spec.window), hint=hint),
        Field(
            name="overlap",
            label="Overlap",
            text=spec.overlap,
            hint="allow, or skip: no job while one of this schedule is active.",
        ),
    ]
    if is_whole:
        hint = "A JSON object. Where a secret is shown as *** and left so, the secret stays."
        payload = Field(
            name="payload", label="Payload", text=pretty(spec.payload), hint=hint, is_long=True
        )
        fields.append(payload)
    return fields


def _changed(typed: list[Field], shown: list[Field]) -> dict[str, Any]:
    """Return the values of the fields that a person has changed.

    :raises InvalidInput: names the field
    """
    return {
        after.name: _READERS[after.name](after.text)
        for after, before in zip(typed, shown, strict=True)
        if after.text != text_in(before.text)
    }


def _choice(name: str, choices: tuple[str, ...], text: str) -> str:
    if text not in choices:
        raise InvalidInput(name, f"is {text[:40]!r}", f"give {' or '.join(choices)}")
    return text


_READERS: Mapping[str, Any] = {
    "kind": str,
    "queue": str,
    "expression": str,
    "timezone": str,
    "priority": READERS["priority"],
    "max_attempts": READERS["max_attempts"],
    "timeout": READERS["timeout"],
    "tags": READERS["tags"],
    "sequence_key": str,
    "jitter": lambda text: length_in(text or "0s", "jitter"),
    "catch_up": lambda text: _choice("catch_up", _CATCH_UP, text),
    "window": lambda text: length_in(text, "window"),
    "overlap": lambda text: _choice("overlap", _OVERLAP, text),
    "payload": lambda text: check_json_text("payload", text),
}


def _elsewhere(visit: Visit, name: str, changed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command, the request and the line of Python that change the same.

    :raises InvalidInput: nothing is changed
    """
    if not changed:
        raise InvalidInput("schedule", "is given no change", "give another value")
    words = [word for key, value in changed.items() for word in flag(key, value)]
    body = {key: plain(value) for key, value in changed.items()}
    return (
        command_line("cron set", name, options=words),
        curl(visit, "PATCH", link("", "schedules", name), body),
        f"await operator.set_schedule({name!r}, ScheduleEdit({arguments(changed)}))",
    )
