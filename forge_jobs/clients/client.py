"""The client of programs with an event loop."""

import asyncio
from types import TracebackType

from forge_jobs.clients.blocking import SyncJobClient
from forge_jobs.clients.calls import ClientCalls


class JobClient(ClientCalls):
    """Enqueues jobs, waits for them and changes them.

    Belongs to the event loop of its first use: calls from another raise ``WrongEventLoop``.
    :attr:`sync` is its blocking twin, for any thread. :meth:`aclose`
    waits for jobs that are being enqueued. The storage stays open.

    :param handlers: payloads of their kinds are checked against their signatures, and their
        defaults hold also for requests made by kind
    :param router: chooses the queue where neither request nor handler names one, see
        ``prefix_router``. Of a kind whose handler is not in ``handlers`` the queue that pods
        publish counts first. Where nothing names a queue, the queue is ``default``
    :param encryption: of payloads for kinds that are not in ``handlers``, and of results. That of
        ``handlers`` when left out
    :param repeat_for: how long an enqueue is repeated while the store is unavailable, or an
        open transaction holds the unique key
    """

    _sync: SyncJobClient | None = None

    @property
    def sync(self) -> SyncJobClient:
        """The same in blocking calls, usable from any thread. Closed with this client.

        Works on an event loop, a thread and connections of its own, opened at the first call.
        """
        if self._sync is None:
            self._check_open()
            self._sync = SyncJobClient(
                self.storage.reopen,
                self._handlers,
                router=self._router,
                encryption=self._encryption,
                repeat_for=self._repeat_for,
            )
        return self._sync

    async def aclose(self) -> None:
        """Take nothing new, finish what is being enqueued. Closing twice is fine."""
        await super().aclose()
        if self._sync is not None:
            await asyncio.to_thread(self._sync.close)

    async def __aenter__(self) -> "JobClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
