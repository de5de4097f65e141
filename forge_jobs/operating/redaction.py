"""Fields that a service hides from people by name, without a mark in any handler."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import structs

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import JobSummary
from forge_jobs.model.jobs import Job
from forge_jobs.model.progress import JobState, LogPage
from forge_jobs.privacy.encryption import is_encrypted
from forge_jobs.privacy.secrets import (
    EACH,
    HIDDEN,
    SECRETS,
    Path,
    marked,
    paths_in,
    readable,
    secret_texts,
    without,
)

_MOST_TEXTS = 100
"""A text is searched for so many hidden values. Where there are more, the text is hidden whole."""


class Redaction:
    """The names of ``redact=``, and what they hide.

    A name is the name of a field at any depth of payload, result or metadata, whatever the case:
    ``password``. With dots the fields around are named too: ``card.number`` is the number of a
    card. What a hidden field holds is hidden in errors, log lines, events and progress of the job
    too, where the value has at least four characters.

    :raises InvalidInput: no names, or an empty one
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        fix = 'give names of fields, as redact=["password", "card.number"]'
        if isinstance(names, str) or not isinstance(names, Collection):
            raise InvalidInput("redact", f"is {a_type(names)}", fix)
        for name in names:
            if not isinstance(name, str) or not all(part.strip() for part in name.split(".")):
                raise InvalidInput("redact", f"holds {name!r:.40}", fix)
        self._names = tuple(tuple(name.casefold().split(".")) for name in names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def hides(self, path: Iterable[str]) -> bool:
        """Return whether a field is hidden, by the names from the outermost field down."""
        names = tuple(name.casefold() for name in path if name != EACH)
        return any(names[-len(name) :] == name for name in self._names)

    def looks_into(self, path: tuple[str, ...]) -> bool:
        """Return whether a path of names leads to a hidden field, or into one."""
        named = tuple(name for name in path if not name.isdigit())
        return any(self.hides(named[: end + 1]) for end in range(len(named)))

    def paths(self, text: str) -> tuple[Path, ...]:
        """Return where a JSON text has hidden fields."""
        if not self._names or is_encrypted(text):
            return ()
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return ((),)
        return tuple(dict.fromkeys(self._walk(value, ())))

    def _walk(self, value: Any, path: Path) -> Iterator[Path]:
        if isinstance(value, dict):
            for name, child in value.items():
                if self.hides((*path, name)):
                    yield (*path, name)
                elif isinstance(child, dict | list):
                    yield from self._walk(child, (*path, name))
        elif isinstance(value, list):
            for child in value:
                if isinstance(child, dict | list):
                    yield from self._walk(child, (*path, EACH))

    def marks(self, payload: str, metadata: Mapping[str, str]) -> Mapping[str, str]:
        """Return metadata that says where the secrets of a payload are, hidden fields included."""
        found = self.paths(payload)
        if not found:
            return metadata
        return {**metadata, SECRETS: marked((*paths_in(metadata), *found))}

    def texts(self, job: Job) -> tuple[str, ...]:
        """Return the values of the hidden fields of a job as texts, the longest first."""
        found = set(secret_texts(job.payload, self.paths(job.payload)))
        if job.result is not None:
            found.update(secret_texts(job.result, self.paths(job.result)))
        hidden = (text for name, text in job.metadata.items() if self.hides((name,)))
        found.update(text for text in hidden if len(text) > 3)
        return tuple(sorted(found, key=lambda text: (-len(text), text)))

    def document(self, text: str) -> str:
        """Return the JSON text of a record without secrets and hidden fields.

        The payload of a schedule is a JSON text within the record.
        """
        if not text:
            return text
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return f'"{HIDDEN}"'
        changed = self._within(value)
        return text if changed == value else msgspec.json.encode(changed).decode()

    def _within(self, value: Any, path: Path = ()) -> Any:
        if isinstance(value, list):
            return [self._within(child, (*path, EACH)) for child in value]
        if not isinstance(value, dict):
            return value
        found = {
            name: HIDDEN if self.hides((*path, name)) else self._within(child, (*path, name))
            for name, child in value.items()
        }
        if not path and isinstance(payload := found.get("payload"), str):
            metadata = found.get("metadata")
            of_schedule = _texts(metadata) if isinstance(metadata, str) else {}
            found["payload"] = readable(payload, self.marks(payload, of_schedule))
            if isinstance(metadata, str):
                found["metadata"] = self.document(metadata)
        return found


NO_REDACTION = Redaction()


def _texts(metadata: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(metadata, type=dict[str, str])
    except msgspec.MsgspecError:
        return {SECRETS: ""}  # unreadable: all of the payload is secret


def clean(text: str, secrets: Collection[str]) -> str:
    """Return a text without the values of hidden fields."""
    if len(secrets) > _MOST_TEXTS:
        return HIDDEN if text else ""
    return without(text, secrets)


def clean_job(job: Job, secrets: Collection[str]) -> Job:
    """Return the job whose errors are without the values of hidden fields."""
    if not secrets:
        return job
    errors = tuple(
        structs.replace(
            error,
            message=clean(error.message, secrets),
            traceback=clean(error.traceback, secrets),
        )
        for error in job.errors
    )
    return structs.replace(job, errors=errors)


def clean_line(line: JobSummary, secrets: Collection[str]) -> JobSummary:
    """Return the line whose error is without the values of hidden fields."""
    return structs.replace(line, last_error=clean(line.last_error, secrets)) if secrets else line


def clean_events(
    events: tuple[TimelineEvent, ...], secrets: Collection[str]
) -> tuple[TimelineEvent, ...]:
    """Return the events without the values of hidden fields."""
    if not secrets:
        return events
    return tuple(structs.replace(each, detail=clean(each.detail, secrets)) for each in events)


def clean_state(state: JobState, secrets: Collection[str]) -> JobState:
    """Return the state whose progress is without the values of hidden fields."""
    if not secrets or state.progress is None:
        return state
    message = clean(state.progress.message, secrets)
    return structs.replace(state, progress=structs.replace(state.progress, message=message))


def clean_log(page: LogPage, secrets: Collection[str]) -> LogPage:
    """Return the lines without the values of hidden fields."""
    if not secrets:
        return page
    lines = tuple(structs.replace(line, text=clean(line.text, secrets)) for line in page.lines)
    return structs.replace(page, lines=lines)
