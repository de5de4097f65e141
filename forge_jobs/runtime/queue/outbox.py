"""All that one queue has for the store, and which item is at fault when the store takes none.

An error of a value condemns the item. Any other error condemns no item before the store has taken
another item. Then an item that is refused alone is set aside, and never dropped.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import structs

from forge_jobs.errors import CONCERNS_ALL, OF_VALUES, StorageRefused, Unavailable
from forge_jobs.model.jobs import Cause, Claim
from forge_jobs.model.transitions import Finalization
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.set_aside import SetAside
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

Item = TypeVar("Item")

BACKLOG = 1_000
"""Ends that may wait for the store before no further job is started."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of results in one call at most. A larger result travels alone."""

_TRIED_ALONE = 2
"""Items that are tried alone before all of them count as refused."""


class Outbox:
    """Ends, releases and a lower grant on the way to the store. Filled by all, emptied by the loop.

    :ivar wakeup: wakes the loop, which has something to do
    :ivar lower_to: the grant to lower to, which the store does not know. None: the store knows
    :ivar deferred: ends of interrupted runs that a stop keeps back. None: each end is sent
    :ivar doubts: an end may be why the store does not answer
    :ivar is_cut_off: the program has closed the storage: nothing can be claimed or stored any more
    """

    def __init__(self, queue: str, services: PodServices) -> None:
        self.wakeup = Wakeup()
        self.lower_to: int | None = None
        self.deferred: list[Finalization] | None = None
        self.doubts = False
        self.is_cut_off = False
        self.aside = SetAside(queue, services)
        self.ends = Ends(services, self)
        self.releases = Releases(services, self)
        self._services = services

    def __bool__(self) -> bool:
        """Return whether an end or a release waits for the next calls."""
        return bool(self.ends.waiting or self.releases.waiting)

    @property
    def is_full(self) -> bool:
        """Return whether so many ends wait for the store that no further job may start."""
        return len(self.ends.waiting) >= BACKLOG or self.aside.count >= BACKLOG

    def end(self, end: Finalization) -> None:
        """Store the end of a claim later. The caller need not wait."""
        if self.deferred is not None and end.transition.cause is Cause.INTERRUPTED:
            self.deferred.append(end)
        else:
            self._send(end)

    def _send(self, end: Finalization) -> None:
        waiting = self.ends.waiting
        if not waiting:
            # With others waiting, the loop has been woken or looks again by itself.
            self.wakeup.wake()
        waiting[id(end)] = end
        if self.is_cut_off:
            self.let_go([end.claim])

    def release(self, claims: Iterable[Claim]) -> None:
        """Hand unstarted claims back later."""
        released = tuple(claims)
        self.releases.put(released)
        self.wakeup.wake()
        if self.is_cut_off:
            self.let_go(released)

    def lower(self, grant: int) -> None:
        """Have the store lower the grant."""
        self.lower_to = grant
        self.wakeup.wake()

    def defer_interrupted(self) -> None:
        """Keep the ends of interrupted runs back from here on."""
        if self.deferred is None:
            self.deferred = []

    def send_deferred(self) -> None:
        """Store the ends that were kept back until now."""
        deferred, self.deferred = self.deferred or (), []
        for end in deferred:
            self._send(end)

    def claims(self) -> list[Claim]:
        """Return the claims whose end or release is not stored, without the deferred ones."""
        return [*self.ends.claims(), *self.releases.claims(), *self.aside.claims()]

    def cut_off(self) -> None:
        """Let go of all claims: the program has closed the storage."""
        self.is_cut_off = True
        self.let_go(self.claims())

    def let_go(self, claims: Iterable[Claim]) -> None:
        """Beat for these claims no longer. Only a reaper can end them now."""
        released = tuple(claims)
        self._services.given_up.update(dict.fromkeys(released, self._services.clock.elapsed()))
        self._services.held.remove(released)

    def is_of_all(self, error: Exception) -> bool:
        """Return whether the error concerns every call of the store, whatever the call carries."""
        if isinstance(error, StorageRefused) or not isinstance(error, CONCERNS_ALL):
            return False
        return not (self.doubts and isinstance(error, Unavailable))


class Outgoing(ABC, Generic[Item]):
    """Items of one sort that wait for the store, oldest first."""

    name = ""

    def __init__(self, services: PodServices, outbox: Outbox) -> None:
        self._services = services
        self._outbox = outbox
        self._aside = outbox.aside
        self.waiting: dict[int, Item] = {}
        """By the ``id`` of each item, in the order in which they are sent."""

    @abstractmethod
    def claim_of(self, item: Item) -> Claim:
        """Return the claim that the item ends."""

    def claims_of(self, items: Sequence[Item]) -> list[Claim]:
        """Return the claims that the items end."""
        return [self.claim_of(item) for item in items]

    def sizes_of(self, items: Sequence[Item]) -> list[int]:
        """Return about how many bytes each item has. Empty: all items are small."""
        return []

    @abstractmethod
    async def send(self, items: Sequence[Item]) -> Sequence[bool | None]:
        """Send the items in one call."""

    @abstractmethod
    def stripped(self, item: Item) -> Item | None:
        """Return what may be stored in place of the item. None: nothing."""

    def put(self, items: Iterable[Item]) -> None:
        """Keep the items for the next calls."""
        for item in items:
            self.waiting[id(item)] = item

    def claims(self) -> Iterator[Claim]:
        """Return the claims of the waiting items."""
        return map(self.claim_of, self.waiting.values())

    def first(self) -> list[Item]:
        """Return the oldest items, as many as one call should carry."""
        found = list(itertools.islice(self.waiting.values(), self._services.jobs.exchange_at_once))
        sizes = self.sizes_of(found)
        if sum(sizes) > BATCH_BYTES:
            fit = sum(total <= BATCH_BYTES for total in itertools.accumulate(sizes))
            del found[max(fit, 1) :]
        return found

    def answered(self, items: Sequence[Item], answers: Sequence[bool | None]) -> None:
        """Take the store's answers."""
        if len(answers) != len(items):
            raise RuntimeError(f"the store gave {len(answers)} answers for {len(items)} items")
        for item in items:
            del self.waiting[id(item)]
        if not all(answers):
            items = self._not_applied(items, answers)
        self._services.held.remove(self.claims_of(items))

    def _not_applied(self, items: Sequence[Item], answers: Sequence[bool | None]) -> list[Item]:
        """Set locked items aside, note lost claims, and return the items that are over."""
        over = []
        for item, answer in zip(items, answers, strict=True):
            if answer is None:
                self._aside.take(self, [item], None)
                continue
            over.append(item)
            if not answer:
                self._lost(item)
        return over

    def ended(self, item: Item, applied: bool) -> None:
        """Take the store's answer for an item that was set aside."""
        self._services.held.remove([self.claim_of(item)])
        if not applied:
            self._lost(item)

    def _lost(self, item: Item) -> None:
        """Note that the item was refused because the claim is lost."""

    async def search(
        self, items: Sequence[Item], error: Exception, works: Callable[[], Awaitable[bool]]
    ) -> None:
        """Store the items that were refused together, except the items at fault.

        :param error: of the call that carried all items
        :param works: makes another call, which fails when the store takes nothing. False: no call
            to make
        :raises Exception: the store refuses all calls. Then nothing is set aside
        """
        refused: list[tuple[Item, Exception]] = []
        if len(items) == 1:
            parts = []
            takes = self._judge(items[0], error, refused)
        elif isinstance(error, OF_VALUES):
            parts = _halves(items)
            takes = True
        else:
            tried = self._services.rng.sample(range(len(items)), _TRIED_ALONE)
            takes = any([await self._try([items[n]], refused) for n in tried])
            parts = [[item for n, item in enumerate(items) if n not in tried]]
        if not takes:
            parts = []
            self._put_last(item for item, _ in refused)
            if not await works():
                raise error
        try:
            while parts:
                part = parts.pop()
                if part and not await self._try(part, refused) and len(part) > 1:
                    parts += _halves(part)
        finally:
            for item, why in refused:
                del self.waiting[id(item)]
                self._aside.take(self, [item], why)

    async def _try(self, items: Sequence[Item], refused: list[tuple[Item, Exception]]) -> bool:
        """Send items. False: the store has not taken them. A single item is noted as refused."""
        try:
            answers = await self.send(items)
        except Exception as error:
            if self._outbox.is_of_all(error):
                raise
            return len(items) == 1 and self._judge(items[0], error, refused)
        self.answered(items, answers)
        return True

    def _judge(self, item: Item, error: Exception, refused: list[tuple[Item, Exception]]) -> bool:
        """Deal with an item that was refused alone. False: noted, the store may refuse all."""
        if not isinstance(error, OF_VALUES):
            refused.append((item, error))
            return False
        del self.waiting[id(item)]
        if (left := self.condemned(item, error)) is not None:
            self.put([left])
        return True

    def condemned(self, item: Item, error: Exception) -> Item | None:
        """Return what to store in place of a refused item. None: the claim is let go."""
        claim, left = self.claim_of(item), self.stripped(item)
        logger.error(
            "the store refuses %s of job %s, %s",
            self.name,
            claim.job_id,
            "whose claim is let go: the job is revived as crashed"
            if left is None
            else "it is stored without error text and result",
            exc_info=error,
            extra={"job_id": claim.job_id, "queue": claim.queue},
        )
        if left is None:
            self._outbox.let_go([claim])
        return left

    def _put_last(self, items: Iterable[Item]) -> None:
        for item in items:
            self.waiting[id(item)] = self.waiting.pop(id(item))


class Ends(Outgoing[Finalization]):
    """Ends of claims on the way to the store."""

    name = "the end"

    def claim_of(self, item: Finalization) -> Claim:
        return item.claim

    def claims_of(self, items: Sequence[Finalization]) -> list[Claim]:
        return [item.claim for item in items]

    def sizes_of(self, items: Sequence[Finalization]) -> list[int]:
        return [len(item.transition.result or "") for item in items]

    async def send(self, items: Sequence[Finalization]) -> Sequence[bool | None]:
        return await self._services.jobs.finalize(items)

    def stripped(self, item: Finalization) -> Finalization | None:
        """Return the end without error text and result. None: there is neither."""
        transition = item.transition
        error = transition.error
        if error is not None:
            error = structs.replace(error, message="(refused by the store)", traceback="")
        bare = Finalization(item.claim, structs.replace(transition, result=None, error=error))
        return None if bare == item else bare

    def _lost(self, item: Finalization) -> None:
        claim = item.claim
        self._services.claim_lost(claim.queue, claim.job_id, "its end was refused")


class Releases(Outgoing[Claim]):
    """Claims that are handed back to the store."""

    name = "the release"

    def claim_of(self, item: Claim) -> Claim:
        return item

    async def send(self, items: Sequence[Claim]) -> Sequence[bool | None]:
        return await self._services.jobs.release(items)

    def stripped(self, item: Claim) -> Claim | None:
        """Return None: there is nothing to leave out."""
        return None


def _halves(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Return the second half before the first, for a stack."""
    middle = len(items) // 2
    return [items[middle:], items[:middle]]
