"""Three incidents for a visitor of the dashboard, and work that goes on beside."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import anyio

from forge_jobs.clients.client import JobClient
from forge_jobs.demo import troubled
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.queues import CooldownPolicy, QueueChange, QueueState
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage

QUEUES = (troubled.ORDERS, troubled.CARDS, troubled.CRM, troubled.MAIL)

_PAUSE = 1.0
_ORDERS_A_SECOND = 3
_COOLING = timedelta(minutes=10)
_CARDS_AT_FIRST, _CALLS, _MAILS = 12, 5, 8

STORY = """Three problems are planted. The Overview names each, and offers an action that ends it:
  1. The card service is away: each charge fails. Seen at once. Pause demo-cards, and the
     service comes back. Then resume, and requeue the dead charges on the page Errors.
  2. The CRM throttles, so demo-crm cools down for ten minutes. Seen after a minute.
  3. A colleague has paused demo-mail, and mails wait. Seen after a minute."""


class Drills:
    """The incidents, and what becomes of them.

    :param folder: of the demo, where the workers look whether the card service is back
    :param say: hears of what has happened
    """

    def __init__(self, storage: Storage, folder: Path, say: Callable[[str], None]) -> None:
        self._storage = storage
        self._client = JobClient(storage, troubled.handlers)
        self._operator = Operator(storage, Actor(name="a colleague", access=ALL))
        self._folder = folder
        self._say = say
        self._count = 0
        self._has_cooled = False
        self._open = {troubled.CARDS, troubled.CRM, troubled.MAIL}

    async def run(self) -> None:
        """Plant all, and go on with the work until cancelled."""
        try:
            await self._plant()
            while True:
                await self._enqueue([self._order() for _ in range(_ORDERS_A_SECOND)])
                if troubled.CARDS in self._open:
                    await self._enqueue([self._charge()])
                await self._look()
                await anyio.sleep(_PAUSE)
        finally:
            await self._client.aclose()

    async def _plant(self) -> None:
        await self._enqueue([self._charge() for _ in range(_CARDS_AT_FIRST)])
        policy = CooldownPolicy(base=_COOLING)
        await self._storage.config.set_queue(troubled.CRM, QueueChange(cooldown=policy))
        await self._enqueue([self._call() for _ in range(_CALLS)])
        # A queue is known from its first job on.
        await self._enqueue([self._mail()])
        await self._operator.pause_queue(troubled.MAIL)
        await self._enqueue([self._mail() for _ in range(_MAILS)])

    async def _look(self) -> None:
        """Notice what the visitor has done."""
        for queue in await self._storage.config.queues():
            if queue.name not in self._open:
                continue
            if ended := self._ended(queue):
                self._open.discard(queue.name)
                left = len(self._open)
                self._say(
                    f"{ended} {left} of 3 problems left." if left else f"{ended} That was all."
                )

    def _ended(self, queue: QueueState) -> str:
        """Return what ended the incident of a queue. "" while there is one."""
        if queue.name == troubled.CARDS and queue.paused:
            (self._folder / troubled.CARDS_ARE_BACK).touch()
            return "demo-cards is paused, nothing fails any more, and the card service is back."
        if queue.name == troubled.MAIL and not queue.paused:
            return "demo-mail is resumed."
        if queue.name == troubled.CRM:
            self._has_cooled |= bool(queue.cooldown_remaining)
            if self._has_cooled and not queue.cooldown_remaining:
                return "demo-crm runs again."
        return ""

    async def _enqueue(self, requests: Sequence[EnqueueRequest]) -> None:
        await self._client.enqueue_many(requests)

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _order(self) -> EnqueueRequest:
        return troubled.order.request(self._number())

    def _charge(self) -> EnqueueRequest:
        return troubled.charge_card.request(str(self._folder), self._number())

    def _call(self) -> EnqueueRequest:
        return troubled.tell_crm.request(str(self._folder), self._number())

    def _mail(self) -> EnqueueRequest:
        return troubled.mail.request(self._number())


async def set_back(storage: Storage) -> None:
    """Take back what stays of the drills beside jobs."""
    known = {queue.name for queue in await storage.config.queues()}
    for name in known.intersection(QUEUES):
        await storage.config.set_paused(name, False)
        await storage.config.clear_cooldown(name)
