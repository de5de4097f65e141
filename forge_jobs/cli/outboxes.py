"""Relays the outbox of a deployment: in a worker, and once by command."""

from collections.abc import Mapping

import anyio

from forge_jobs.clients.outbox.outbox import Outbox
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.config import Deployment
from forge_jobs.model.letters.outbox import OutboxState
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage


class OutboxOpener:
    """Opens the database of ``FORGE_OUTBOX``, which may be away while the worker serves its queues.

    :param opened: the storage of the queues, and afterwards the database too
    """

    def __init__(self, url: str, name: str, opened: list[Storage]) -> None:
        self._url = url
        self._name = name
        self._opened = opened
        self._outbox: Outbox | None = None

    async def __call__(self) -> Outbox:
        """Open the outbox.

        :raises StorageError: the database is away, or not migrated
        """
        here = await open_storage(self._url)
        self._opened.append(here)
        self._outbox = Outbox(here, self._opened[0], name=self._name)
        return self._outbox

    async def states(self) -> Mapping[str, OutboxState]:
        """Return the state of the outbox by the name of the destination, none before it is open.

        :raises StorageError: the database is away
        """
        return {} if self._outbox is None else {self._name: await self._outbox.state()}


def relay_all(deployment: Deployment, to: str, name: str) -> OutboxReport:
    """Relay until no record waits that can be sent now. Return the sums.

    :param to: URL of the store of the queues
    :raises StorageError: a store is away
    """

    async def relay() -> OutboxReport:
        relayed = set_aside = 0
        async with await open_storage(to) as there, await open_storage(deployment.outbox) as here:
            outbox = Outbox(here, there, name=name)
            while True:
                report = await outbox.relay_once()
                relayed += report.relayed
                set_aside += report.set_aside
                if not report.more:
                    return OutboxReport(relayed, set_aside)

    return anyio.run(relay)
