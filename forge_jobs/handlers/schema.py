"""The manifest: what kinds there are, for people, other languages and tools."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry


class KindEntry(Struct, frozen=True, kw_only=True):
    """The entry of one kind. Encodes to JSON as it stands.

    :param queue: the handler's own. None: the router chooses
    :param description: first line of the docstring
    :param payload_schema: JSON Schema (2020-12) of the payload
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


def manifest(registry: HandlerRegistry) -> list[KindEntry]:
    """List all kinds of ``registry``, by name. Aliases are listed with their kind."""
    return sorted((_entry(handler) for handler in registry), key=lambda entry: entry.kind)


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
    )
