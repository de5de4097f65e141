"""Reads of kinds."""

from collections import Counter
from datetime import timedelta

from forge_jobs.errors import NotFound
from forge_jobs.model.names import check_name
from forge_jobs.model.processes import PublishedKind
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.documents import widened
from forge_jobs.operating.kinds.documents import Kinds, KindView
from forge_jobs.operating.kinds.schemas import entry_in


class KindCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_kinds(self) -> Kinds:
        """All kinds that pods have described, with the JSON Schema of their payloads.

        Known without the handlers, and while no pod runs.
        """
        self.actor.need(Right.READ)
        found = await self._views(await self.storage.procs.published_kinds())
        return Kinds(tuple(found))

    async def get_kind(self, kind: str) -> KindView:
        """The kind with the JSON Schema of the payload.

        :param kind: the name, or another name of the kind
        :raises NotFound: no pod has described such a kind
        """
        self.actor.need(Right.READ)
        check_name("kind", kind)
        found = await self._views(await self.storage.procs.published_kinds([kind]), kind)
        if not found:
            raise NotFound(f"no pod has described a kind {kind!r}")
        return found[0]

    async def _views(self, stored: list[PublishedKind], asked: str = "") -> list[KindView]:
        """Return the kinds that are open to the actor. A kind is listed under its own name only."""
        known: Counter[str] = Counter()
        for state in await self.storage.procs.pods() if stored else ():
            if state.lease_remaining > timedelta(0):
                known.update(state.pod.kinds)
        found = []
        for each in stored:
            entry = entry_in(each.document)
            if entry is None or each.kind not in (entry.kind, asked):
                continue
            if entry.queue is None or self.actor.sees(entry.queue):
                pods, at = known[each.kind], each.published_at
                found.append(widened(KindView, entry, pods=pods, published_at=at))
        return found
