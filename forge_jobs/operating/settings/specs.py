"""Definitions of schedules as operators write them, with what is known of the kind."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import UNSET, Struct, UnsetType, json, structs

from forge_jobs.clients.schedules import SCHEDULE_OPTIONS, schedule
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.schedules import CatchUp, Overlap, ScheduleSpec
from forge_jobs.operating.hiding import OURS
from forge_jobs.operating.kinds.schemas import UNKNOWN, KnownKind, needs_key
from forge_jobs.privacy.encryption import is_encrypted
from forge_jobs.privacy.secrets import SECRETS, marked, paths_in, with_secrets_of

_LINES = ("limit_name", "limit_key", "sequence")
"""Fields for the order of the jobs. Made of the kind and the payload."""


class ScheduleEdit(Struct, frozen=True, kw_only=True):
    """Parts of a schedule. What is left out stays, or is as the kind says in a new schedule.

    :param payload: JSON text of an object, or such an object
    :param max_attempts: None: without a bound
    :param timeout: None: without a bound
    :param sequence_key: of the sequence of the jobs, in place of the key that the kind makes of the
        payload. "": none. The rule for a failing head stays, or is as the kind says
    """

    kind: str | UnsetType = UNSET
    expression: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    payload: str | Mapping[str, Any] | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    jitter: timedelta | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    window: timedelta | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    max_attempts: int | UnsetType | None = UNSET
    timeout: timedelta | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    sequence_key: str | UnsetType = UNSET

    @property
    def given(self) -> dict[str, Any]:
        """The parts that are given, by name."""
        return {name: value for name, value in structs.asdict(self).items() if value is not UNSET}


def checked_spec(name: str, edit: ScheduleEdit) -> ScheduleSpec:
    """Return the new schedule that an edit describes of an unknown kind. Nothing is stored.

    :raises InvalidInput: a value is wrong. Names the field and the fix
    """
    for needed in ("kind", "expression"):
        if getattr(edit, needed) is UNSET:
            raise InvalidInput(needed, "is missing", "a new schedule needs one")
    return spec_of(UNKNOWN, name=name, **edit.given)


def spec_of(
    known: KnownKind, *, name: str, kind: str, expression: str, **parts: Any
) -> ScheduleSpec:
    """Return the checked spec. Parts that are left out are as the kind says.

    :raises InvalidInput: a value is wrong. Names the field and the fix
    """
    payload = parts.pop("payload", "{}")
    options = {option: parts.pop(option) for option in SCHEDULE_OPTIONS & parts.keys()}
    request = EnqueueRequest(kind, payload, handler_options=known.options, **options)
    return schedule(name, request, expression, **parts)


def edited_spec(
    known: KnownKind, stored: ScheduleSpec, given: Mapping[str, Any], marks: Mapping[str, str]
) -> ScheduleSpec:
    """Return the stored spec with the given parts. Secrets keep their marks.

    :param known: of the kind that the schedule has afterwards
    :param marks: metadata that says what people must not read of the stored payload
    :raises InvalidInput: a value is wrong, or the key of an encrypted payload is not here
    """
    was_encrypted = is_encrypted(stored.payload)
    is_moved = given.get("kind", stored.kind) != stored.kind
    metadata = json.decode(stored.metadata, type=dict[str, str])
    own = {key: text for key, text in metadata.items() if key not in OURS}
    parts = structs.asdict(stored) | {"metadata": own, **given}
    for field in _LINES:
        del parts[field]
    if was_encrypted and "payload" not in given:
        if is_moved:
            raise InvalidInput(
                "payload", f"is encrypted for the kind {stored.kind!r}", "give one for the new kind"
            )
        kept = spec_of(UNKNOWN, **(parts | {"payload": "{}"}))
        kept = structs.replace(kept, payload=stored.payload, metadata=stored.metadata)
        return _in_line_of(stored, kept, given)
    if "payload" in given:
        text = spec_of(UNKNOWN, **parts).payload
        before = "{}" if was_encrypted else stored.payload
        parts["payload"], _ = with_secrets_of(text, before, marks)
    if is_moved or "payload" in given:
        known.check(parts["payload"])
        if was_encrypted and not is_moved and known.options.encryption is None:
            raise needs_key()
    spec = spec_of(known, **parts)
    if not is_moved and ("payload" not in given or known is UNKNOWN):
        spec = _in_line_of(stored, spec, given)
    made = json.decode(spec.metadata, type=dict[str, str])
    secret = dict.fromkeys((*paths_in(metadata), *paths_in(made)))
    if secret:
        text = json.encode(made | {SECRETS: marked(secret)}).decode()
        spec = structs.replace(spec, metadata=text)
    return spec


def _in_line_of(stored: ScheduleSpec, spec: ScheduleSpec, given: Mapping[str, Any]) -> ScheduleSpec:
    """Return the spec with the limit and the sequence of the stored one. A given key stays, with
    the rule of the stored one."""
    before, line = stored.sequence, stored.sequence
    if "sequence_key" in given:
        line = spec.sequence
        if line is not None and before is not None:
            line = structs.replace(before, key=line.key)
    kept = {field: getattr(stored, field) for field in _LINES}
    return structs.replace(spec, **(kept | {"sequence": line}))
