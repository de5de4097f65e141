"""The manifest: what kinds there are, for people, other languages and tools."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.limits.concurrency import Limit
from forge_jobs.handlers.limits.sequences import Sequence
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Unique
from forge_jobs.privacy.secrets import marked, secret_paths

MOST_BYTES = 64 * 1024
"""A longer entry is published without the schema."""


class KindEntry(Struct, frozen=True, kw_only=True):
    """The entry of one kind. Encodes to JSON as it stands.

    :param queue: the handler's own. None: the router chooses
    :param description: first line of the docstring
    :param payload_schema: JSON Schema (2020-12) of the payload
    :param is_encrypted: payloads are encrypted by the programs that have the key
    """

    kind: str
    aliases: tuple[str, ...]
    description: str
    queue: str | None
    priority: int
    max_attempts: int | None
    timeout: timedelta | None
    tags: tuple[str, ...]
    is_async: bool
    payload_schema: Mapping[str, Any]
    keep_result: bool = True
    unique: Unique | None = None
    spread: timedelta | None = None
    is_encrypted: bool = False
    concurrency: Limit | None = None
    sequence: Sequence | None = None

    @property
    def defaults(self) -> HandlerOptions:
        """The options of a request that names none, as the handler would fill them in."""
        paths = secret_paths(self.payload_schema)
        return HandlerOptions(
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            tags=self.tags,
            keep_result=self.keep_result,
            unique=self.unique,
            spread=self.spread,
            concurrency=self.concurrency,
            sequence=self.sequence,
            secrets=marked(paths) if paths else "",
        )


def manifest(registry: HandlerRegistry) -> list[KindEntry]:
    """List all kinds of ``registry``, by name. Aliases are listed with their kind."""
    return sorted((_entry(handler) for handler in registry), key=lambda entry: entry.kind)


def published(registry: HandlerRegistry) -> dict[str, str]:
    """Return the entries as pods publish them: JSON texts by kind, and by alias too."""
    found: dict[str, str] = {}
    for entry in manifest(registry):
        text = msgspec.json.encode(entry)
        if len(text) > MOST_BYTES:
            text = msgspec.json.encode(msgspec.structs.replace(entry, payload_schema={}))
        found |= dict.fromkeys((entry.kind, *entry.aliases), text.decode())
    return found


def _entry(handler: Handler[..., Any]) -> KindEntry:
    options = handler.options
    return KindEntry(
        kind=handler.kind,
        aliases=handler.aliases,
        description=handler.description,
        queue=options.queue,
        priority=options.priority,
        max_attempts=options.max_attempts,
        timeout=options.timeout,
        tags=options.tags,
        is_async=handler.is_async,
        payload_schema=handler.signature.json_schema(),
        keep_result=options.keep_result,
        unique=options.unique,
        spread=options.spread,
        is_encrypted=options.encryption is not None,
        concurrency=options.concurrency,
        sequence=options.sequence,
    )
