"""Payloads checked by what pods say of their kinds, where no handler is at hand."""

import msgspec

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.schema import KindEntry
from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.storage.protocols import Storage

try:
    import jsonschema_rs
except ImportError:  # a part of forge-jobs[web]
    jsonschema_rs = None  # type: ignore[assignment]

_FIX = "give what the JSON Schema of the kind says, see forge-jobs kinds --stored --json"
_SHOWN = 200


async def described(storage: Storage, kind: str) -> KindEntry | None:
    """Return what pods say of a kind, None where nothing that can be read is known."""
    for each in await storage.procs.published_kinds([kind]):
        return entry_in(each.document)
    return None


def entry_in(document: str) -> KindEntry | None:
    """Return the entry in a stored text, None where the text cannot be read."""
    try:
        return msgspec.json.decode(document, type=KindEntry)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def check_by_schema(entry: KindEntry, text: str) -> None:
    """Refuse a payload that the schema of the kind does not allow.

    What the payload holds is in no message, for that may be a secret.

    :raises InvalidInput: the field is ``payload.name``
    """
    if jsonschema_rs is None or entry.kind == DEAD_LETTER_KIND or not entry.payload_schema:
        return
    try:
        # No schema may name an address that this process would then ask.
        validator = jsonschema_rs.validator_for(
            dict(entry.payload_schema), offline=True, mask="the value"
        )
    except (jsonschema_rs.ValidationError, ValueError):
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidInput("payload", "is not valid JSON", "give one JSON object") from None
    for error in validator.iter_errors(value):
        path = "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path
        )
        raise InvalidInput(f"payload{path[:_SHOWN]}", error.message[:_SHOWN], _FIX)


async def check_payload(
    storage: Storage, handlers: HandlerRegistry | None, kind: str, text: str
) -> None:
    """Refuse a payload that the handler could not be called with: by the handler where the program
    has the handler, else by the schema that pods publish.

    :raises InvalidInput: names the field
    """
    handler = None if handlers is None else handlers.get(kind)
    if handler is not None:
        handler.signature.check(text)
    elif entry := await described(storage, kind):
        check_by_schema(entry, text)
