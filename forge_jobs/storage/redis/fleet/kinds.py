"""Descriptions of kinds by pods."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from forge_jobs.clock import EPOCH, duration_us
from forge_jobs.model.processes import KINDS_KEPT, PublishedKind
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.salvage import instant_or


async def _publish(database: Database, documents: Mapping[str, str]) -> None:
    texts = [part for each in documents.items() for part in each]
    request = request_of("publish_kinds", documents=texts, kept=duration_us(KINDS_KEPT))
    await database.run_one("publish_kinds", database.keys.fleet, request, bool)


async def _read(database: Database, names: Sequence[str] | None) -> list[PublishedKind]:
    request = request_of("published_kinds", names=False if names is None else list(names))
    flat = await database.run_one("published_kinds", database.keys.fleet, request, list[str])
    stored = sorted(zip(flat[::2], flat[1::2], strict=True))
    found = ((kind, text.partition(" ")) for kind, text in stored)
    return [
        PublishedKind(kind=kind, document=document, published_at=_instant(at))
        for kind, (at, _, document) in found
    ]


def _instant(stored: str) -> datetime:
    return instant_or(int(stored) if stored.isdecimal() else stored, EPOCH)


class KindCalls:
    """A part of the ``ProcStore`` on Redis."""

    _database: Database

    async def publish_kinds(self, documents: Mapping[str, str]) -> None:
        await _publish(self._database, documents)

    async def published_kinds(self, names: Sequence[str] | None = None) -> list[PublishedKind]:
        return await _read(self._database, names)
