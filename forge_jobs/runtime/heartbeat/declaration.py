"""The record of a pod in the store, sent again until the store knows."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec.structs import replace

from forge_jobs.model.processes import Beat, Pod, PodLease
from forge_jobs.storage.protocols import Storage


class Declaration:
    """The record of a pod, and the queues, limits and schedules that its code declares.

    Queues are changed on the event loop of the handlers. The heartbeat's thread tells the store.

    :param declare: declares queues, rate limits and schedules at each registration after the first:
        the store may have been emptied
    """

    def __init__(self, pod: Pod, declare: Callable[[Storage], Awaitable[None]]) -> None:
        self.pod = pod
        self._declare = declare
        self._queues = frozenset(pod.queues)

    def change_queues(self, queues: tuple[str, ...]) -> None:
        """Say other queues from the next beat on."""
        self.pod = replace(self.pod, queues=queues)
        self._queues = frozenset(queues)

    async def declare(self, storage: Storage) -> None:
        """Declare what the code declares."""
        await self._declare(storage)

    async def correct(
        self, storage: Storage, lease: PodLease, beat: Beat, lease_for: timedelta
    ) -> bool:
        """Tell the store of other queues than those that it named in a beat. False: no need."""
        if beat.queues.keys() == self._queues or not beat.lease_held:
            return False
        pod = self.pod
        if not (beat.queues.keys() ^ set(pod.queues)) - beat.silent - beat.admitted:
            return False
        return await storage.procs.change_queues(lease, pod, lease_for)
