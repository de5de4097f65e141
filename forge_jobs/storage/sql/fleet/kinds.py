"""Descriptions of kinds by pods."""

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, select, update

from forge_jobs.clock import EPOCH, duration_us
from forge_jobs.model.processes import KINDS_KEPT, PublishedKind
from forge_jobs.storage.salvage import instant_or
from forge_jobs.storage.sql.base.action_tables import kinds
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.transaction import Tx

_CHANGE = (
    update(kinds)
    .where(kinds.c.kind == bindparam("of"))
    .values(document=bindparam("text"), published_at=bindparam("at"))
)
_FORGET = delete(kinds).where(kinds.c.published_at <= bindparam("before"))
_ALL = select(kinds)
_SOME = _ALL.where(one_of(kinds.c.kind, "names"))


def _publish(tx: Tx, documents: Mapping[str, str]) -> None:
    tx.execute(_FORGET, {"before": tx.now - duration_us(KINDS_KEPT)})
    # In one order, so that two pods do not wait for each other.
    for kind, text in sorted(documents.items()):
        fields = {"kind": kind, "document": text, "published_at": tx.now}
        if tx.execute(tx.flavor.insert_ignore(kinds), fields).rowcount == 0:
            tx.execute(_CHANGE, {"of": kind, "text": text, "at": tx.now})


def _read(tx: Tx, names: Sequence[str] | None) -> list[PublishedKind]:
    if names is None:
        rows = list(tx.execute(_ALL))
    else:
        rows = [row for some in portions(names) for row in tx.execute(_SOME, {"names": some})]
    found = (
        PublishedKind(
            kind=row.kind, document=row.document, published_at=instant_or(row.published_at, EPOCH)
        )
        for row in rows
    )
    # Sorted here: databases collate names each their own way.
    return sorted(found, key=lambda each: each.kind)


class KindCalls:
    """A part of the ``ProcStore`` of the SQL backends."""

    _database: Database

    async def publish_kinds(self, documents: Mapping[str, str]) -> None:
        await self._database.write(lambda tx: _publish(tx, documents))

    async def published_kinds(self, names: Sequence[str] | None = None) -> list[PublishedKind]:
        return await self._database.read(lambda tx: _read(tx, names))
