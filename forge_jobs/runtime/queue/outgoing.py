"""What one queue has to tell the store, and who is at fault when the store does not take it.

An error of a value condemns its item. Any other is nobody's until the store has taken something
else: then whoever it refuses alone is set aside, and nothing is ever dropped for it.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import structs

from forge_jobs.errors import OF_VALUES
from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Finalization
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.set_aside import SetAside

logger = reporter(__name__)

Item = TypeVar("Item")

BATCH_BYTES = 4 * 1024 * 1024
"""Results in one call at most; a larger one travels alone."""

_TRIED_ALONE = 2
"""Items that are tried alone before all of them count as refused."""


class Outgoing(ABC, Generic[Item]):
    """Items of one sort that wait for the store, oldest first.

    :param is_of_all: whether an error befalls every call, whatever is in it
    :param let_go: told of claims that only a reaper can end now
    """

    name = ""

    def __init__(
        self,
        services: PodServices,
        aside: SetAside,
        is_of_all: Callable[[Exception], bool],
        let_go: Callable[[Iterable[Claim]], None],
    ) -> None:
        self._services = services
        self._aside = aside
        self._is_of_all = is_of_all
        self._let_go = let_go
        self.waiting: dict[int, Item] = {}
        """By the ``id`` of each, in the order they are sent."""

    @abstractmethod
    def claim_of(self, item: Item) -> Claim:
        """Of which claim it is the end."""

    def claims_of(self, items: Sequence[Item]) -> list[Claim]:
        """Of which claims they are the ends."""
        return [self.claim_of(item) for item in items]

    def sizes_of(self, items: Sequence[Item]) -> list[int]:
        """Bytes, about."""
        return []

    @abstractmethod
    async def send(self, items: Sequence[Item]) -> Sequence[bool | None]:
        """Send them in one call."""

    @abstractmethod
    def stripped(self, item: Item) -> Item | None:
        """What may be stored in its place; None: nothing."""

    def put(self, items: Iterable[Item]) -> None:
        """Keep these for the next calls."""
        for item in items:
            self.waiting[id(item)] = item

    def claims(self) -> Iterator[Claim]:
        """The claims of what waits."""
        return map(self.claim_of, self.waiting.values())

    def first(self) -> list[Item]:
        """The oldest ones, as many as one call should carry."""
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
        """Deal with what was not stored; what the store has answered for."""
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
        """The store has answered for one that was set aside."""
        self._services.held.remove([self.claim_of(item)])
        if not applied:
            self._lost(item)

    def _lost(self, item: Item) -> None:
        """It was refused, for the claim is another's."""

    async def search(
        self, items: Sequence[Item], error: Exception, works: Callable[[], Awaitable[bool]]
    ) -> None:
        """Store what was refused together, but for those at fault.

        :param error: of the call that carried all of them
        :param works: makes another call, which fails when the store takes nothing; False: there is
            none to make
        :raises Exception: the store refuses whatever it is given; then nothing is set aside
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
        """Send these. False: the store has not taken them, and if it is one, it is noted."""
        try:
            answers = await self.send(items)
        except Exception as error:
            if self._is_of_all(error):
                raise
            return len(items) == 1 and self._judge(items[0], error, refused)
        self.answered(items, answers)
        return True

    def _judge(self, item: Item, error: Exception, refused: list[tuple[Item, Exception]]) -> bool:
        """Deal with one that was refused alone. False: maybe not for its own sake, it is noted."""
        if not isinstance(error, OF_VALUES):
            refused.append((item, error))
            return False
        del self.waiting[id(item)]
        if (left := self.condemned(item, error)) is not None:
            self.put([left])
        return True

    def condemned(self, item: Item, error: Exception) -> Item | None:
        """What to store in place of one that no store takes; None: its claim is let go."""
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
            self._let_go([claim])
        return left

    def _put_last(self, items: Iterable[Item]) -> None:
        for item in items:
            self.waiting[id(item)] = self.waiting.pop(id(item))


class Ends(Outgoing[Finalization]):
    """Ends of claims."""

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
        """Without the texts that came with it; None when it has none."""
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
    """Claims that are handed back."""

    name = "the release"

    def claim_of(self, item: Claim) -> Claim:
        return item

    async def send(self, items: Sequence[Claim]) -> Sequence[bool | None]:
        return await self._services.jobs.release(items)

    def stripped(self, item: Claim) -> Claim | None:
        """There is nothing to leave out."""
        return None


def _halves(items: Sequence[Item]) -> list[Sequence[Item]]:
    """The second before the first, for a stack."""
    middle = len(items) // 2
    return [items[middle:], items[:middle]]
