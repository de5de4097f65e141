"""Payloads checked by what pods say of their kinds, where no handler is at hand."""

import msgspec
from msgspec import Struct, structs

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.schema import KindEntry
from forge_jobs.handlers.signatures import Signature
from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.names import check_name
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


class KnownKind(Struct, frozen=True, kw_only=True):
    """The knowledge of this process about a kind.

    :param options: of the handler, here or in the pods. With the encryption, where the key is here
    :param signature: of the handler, where the program has the handler
    :param entry: as pods publish the kind, where the handler is elsewhere
    :param lacks_key: payloads are encrypted and the key is elsewhere
    """

    options: HandlerOptions = HandlerOptions()
    signature: Signature | None = None
    entry: KindEntry | None = None
    lacks_key: bool = False

    def check(self, text: str) -> None:
        """Refuse a payload that the handler could not be called with, or that needs the key.

        :raises InvalidInput: names the field
        """
        if self.lacks_key:
            raise needs_key()
        if self.signature is not None:
            self.signature.check(text)
        elif self.entry is not None:
            check_by_schema(self.entry, text)


UNKNOWN = KnownKind()


async def known_kind(storage: Storage, handlers: HandlerRegistry | None, kind: str) -> KnownKind:
    """Return what is known of a kind: by the handler where the program has the handler, else by
    what pods publish."""
    handler = None if handlers is None else handlers.get(kind)
    if handler is not None:
        return KnownKind(options=handler.options, signature=handler.signature)
    entry = await described(storage, check_name("kind", kind))
    if entry is None:
        return UNKNOWN
    key = handlers.encryption if entry.is_encrypted and handlers is not None else None
    return KnownKind(
        options=structs.replace(entry.defaults, encryption=key),
        entry=entry,
        lacks_key=entry.is_encrypted and key is None,
    )


def needs_key() -> InvalidInput:
    """Return the refusal of a plain payload for a kind with encrypted ones."""
    fix = "do that in a program with the handlers, which have the key"
    return InvalidInput("kind", "has encrypted payloads", fix)


async def check_payload(
    storage: Storage, handlers: HandlerRegistry | None, kind: str, text: str
) -> None:
    """Refuse a payload that the handler could not be called with, or that needs the key.

    :raises InvalidInput: names the field
    """
    (await known_kind(storage, handlers, kind)).check(text)
