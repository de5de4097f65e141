"""Settings of a queue: what is in force and from where, and the forms that change them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import UNSET, Struct

from forge_jobs.durations import format_duration, parse_duration
from forge_jobs.errors import InvalidInput
from forge_jobs.model.queues import CooldownPolicy, Retention
from forge_jobs.model.retries import Retry, parse_retry, retry_text
from forge_jobs.operating.documents import plain
from forge_jobs.operating.settings.lines import SettingLine, SettingLines
from forge_jobs.operating.settings.queues import CooldownEdit, QueueEdit, RetentionEdit
from forge_jobs.web.pages.words import length, number

MAY_BE_EMPTY = frozenset({"dead_letter", "objective"})
"""Fields whose empty text is a value. Others that are empty are left out."""

_LABELS = {
    "max_workers": "Max workers",
    "cooldown": "Cool-down",
    "retention": "Keeps jobs",
    "retry": "Retries",
    "dead_letter": "Dead letters",
    "objective": "Objective",
}


class SettingField(Struct, frozen=True, kw_only=True):
    """A field of the form of a setting.

    :param choices: the only values. Empty: any text
    """

    name: str
    label: str
    text: str
    hint: str = ""
    choices: tuple[str, ...] = ()


def settings_of(found: SettingLines) -> list[dict[str, Any]]:
    """Return the lines of the table."""
    return [
        {
            "name": each.name,
            "label": _LABELS.get(each.name, each.name),
            "value": _said(each.name, each.value),
            "of_code": _said(each.name, each.of_code),
            "is_overridden": each.is_overridden,
            "actor": each.actor,
            "at": each.at,
            "action_id": each.action_id,
            "fields": _fields(each),
        }
        for each in found.settings
    ]


def _said(name: str, value: Any) -> str:
    if isinstance(value, CooldownPolicy):
        return f"{value.mode}, {length(value.base)} to {length(value.cap)}"
    if isinstance(value, Retention):
        parts = (
            (status, getattr(value, status), getattr(value, f"max_{status}"))
            for status in ("done", "dead", "cancelled")
        )
        return ", ".join(
            f"{status} {length(age)}" + ("" if most is None else f" and at most {number(most)}")
            for status, age, most in parts
        )
    if name == "retry":
        return retry_text(value) if value else "exponential, where the handler says nothing"
    if name == "max_workers":
        return number(value)
    return value or "none"


def _fields(line: SettingLine) -> list[SettingField]:
    value = line.value
    if isinstance(value, CooldownPolicy):
        return [
            SettingField(
                name="cooldown", label="Grows", text=value.mode, choices=("flat", "exponential")
            ),
            *(
                SettingField(name=f"cooldown_{name}", label=label, text=format_duration(each))
                for name, label, each in (
                    ("base", "First pause", value.base),
                    ("cap", "Longest pause", value.cap),
                    ("quiet", "Forgotten after", value.quiet),
                )
            ),
        ]
    if isinstance(value, Retention):
        found = []
        for status in ("done", "dead", "cancelled"):
            age, most = getattr(value, status), getattr(value, f"max_{status}")
            found += [
                SettingField(
                    name=f"keep_{status}", label=f"Keep {status}", text=format_duration(age)
                ),
                SettingField(
                    name=f"max_{status}",
                    label="at most",
                    text="" if most is None else str(most),
                    hint="no bound",
                ),
            ]
        return found
    hint = {
        "retry": "exponential:1s:1h:factor=3, linear:30s, fixed:30s:jitter=no or delays:1s,5s",
        "objective": "95% within 30s",
        "dead_letter": "a queue",
    }.get(line.name, "")
    text = (retry_text(value) if value else "") if line.name == "retry" else str(value)
    return [SettingField(name=line.name, label=_LABELS[line.name], text=text, hint=hint)]


def edit_of(fields: Iterable[tuple[str, str]]) -> QueueEdit:
    """Return the edit that the fields of a form mean.

    :raises InvalidInput: a value is wrong
    """
    cooldown: dict[str, Any] = {}
    retention: dict[str, Any] = {}
    own: dict[str, Any] = {}
    back: list[str] = []
    for name, given in fields:
        text = given.strip()
        if name == "from_code":
            back.append(text)
        elif name == "cooldown":
            if text not in ("flat", "exponential"):
                raise InvalidInput(name, f"is {text[:40]!r}", "give flat or exponential")
            cooldown["mode"] = text
        elif name in ("cooldown_base", "cooldown_cap", "cooldown_quiet"):
            cooldown[name.removeprefix("cooldown_")] = _length(name, text)
        elif name in ("keep_done", "keep_dead", "keep_cancelled"):
            retention[name.removeprefix("keep_")] = _length(name, text)
        elif name in ("max_done", "max_dead", "max_cancelled"):
            retention[name] = _count(name, text)
        elif name in _READERS:
            own[name] = _READERS[name](name, text)
    return QueueEdit(
        cooldown=CooldownEdit(**cooldown) if cooldown else None,
        retention=RetentionEdit(**retention) if retention else None,
        from_code=tuple(back),
        **own,
    )


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(name, f"is {text[:40]!r}", "give a whole number")
    return int(text)


def _length(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise InvalidInput(name, f"is {text[:40]!r}", "give a duration, as 90s or 7d") from None


def _retry(name: str, text: str) -> Retry:
    return parse_retry(text, name)


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "max_workers": _count,
    "retry": _retry,
    "dead_letter": lambda _, text: text,
    "objective": lambda _, text: text,
}


def in_words(name: str, text: str) -> str:
    """Return a field of a change as the headline of a preview says."""
    if name == "from_code":
        return f"{text.replace('_', ' ')} as in code"
    return f"{name.replace('_', ' ')} {text or 'none'}"


def document_of(edit: Struct) -> dict[str, Any]:
    """Return the body that asks for the same over HTTP."""
    found = {}
    for name, value in _given(edit):
        found[name] = document_of(value) if _is_edit(value) else plain(value)
    return found


def line_of(edit: Struct) -> str:
    """Return the edit in Python."""
    said = ", ".join(
        f"{name}={line_of(value) if _is_edit(value) else repr(value)}"
        for name, value in _given(edit)
    )
    return f"{type(edit).__name__}({said})"


def _is_edit(value: object) -> bool:
    return isinstance(value, CooldownEdit | RetentionEdit)


def _given(edit: Struct) -> list[tuple[str, Any]]:
    fields = ((name, getattr(edit, name)) for name in edit.__struct_fields__)
    return [
        (name, value) for name, value in fields if value is not None and value not in (UNSET, ())
    ]
