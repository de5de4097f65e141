"""The queues that a pod serves, which may change while the pod runs."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta

from msgspec.structs import replace

from forge_jobs.errors import ConfigError, InvalidInput
from forge_jobs.model.names import check_queue
from forge_jobs.model.processes import Beat, Pod
from forge_jobs.model.queues import QueueSettings
from forge_jobs.reports import reporter
from forge_jobs.runtime.heartbeat.declaration import Declaration
from forge_jobs.runtime.heartbeat.thread import Heartbeat
from forge_jobs.runtime.pod.startup import RuntimePlan, declare_again, warn_of_patterns
from forge_jobs.runtime.pod.tasks import PodTask, PodTasks
from forge_jobs.runtime.queue.loop import QueueLoop
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.shared.clean_texts import named
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)

_LOOK_EVERY = timedelta(milliseconds=100)
_AT_ONCE = 20
"""So many queues are declared at once."""

_GROWS_BY = 0.25
"""A pod takes up new queues once they are so many of the present ones."""


class ServedQueues:
    """Begins and ends the loops of the queues of one pod.

    A queue that is added has a loop at once, without slots. The heartbeat tells the store of the
    queue until the store knows, so a lost call or an outage delays a queue and loses none.

    :ivar loops: by name
    :ivar tasks_over: each done when a task of a queue has ended for good
    """

    def __init__(self, plan: RuntimePlan, pod: Pod, services: PodServices, tasks: PodTasks) -> None:
        self.loops: dict[str, QueueLoop] = {}
        self.tasks_over: list[asyncio.Future[None]] = []
        self.declared = dict(plan.queues)
        """Settings of the code, None for those of the store. Replaced, never changed."""
        self._services = services
        self._tasks = tasks
        self._plan = plan
        self.declaration = Declaration(pod, self._declare_all)
        """Of the pod. The heartbeat tells the store."""
        self._of_queue: dict[str, list[PodTask]] = {}
        self._leaving: dict[str, asyncio.Future[None]] = {}
        self._named = set(plan.queues)
        """Queues that the program has named. The others came by a pattern."""
        self._known = frozenset(plan.queues)
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_closed = False
        self.heartbeat: Heartbeat
        for name in plan.queues:
            self._make(name)
        self._share()

    def begin(self) -> None:
        """Let all queues work."""
        for name in self.loops:
            self._begin(name)

    @property
    def names(self) -> Collection[str]:
        """Return the names, those of queues that are about to go too."""
        return self.loops.keys()

    def activity(self, name: str) -> int | None:
        """Return a number that changes whenever the pod asks for jobs of the queue.

        None: the queue is busy, or the program has named the queue, so that the pod stays.
        """
        loop = self.loops[name]
        is_busy = loop.pool.running or loop.pool.held_ahead or not loop.is_idle
        stays = is_busy or name in self._named or name in self._leaving
        return None if stays else loop.calls_begun

    async def add(self, name: str, settings: QueueSettings | None) -> None:
        """Serve a queue from now on. Returns when the store knows.

        A cancellation while the store does not know yet leaves the queue served.

        :raises Unavailable: the store did not take the settings, and nothing has changed
        :raises ConfigError: the pod stops
        """
        while leaving := self._leaving.get(name):
            await asyncio.wait([leaving])
        await self.include({name: settings})
        self._refuse_when_closed()
        if name not in self._named:
            warn_of_patterns([name])
        self._named.add(name)
        await self._until_known(name, is_there=True)

    async def include(self, queues: Mapping[str, QueueSettings | None]) -> None:
        """Serve these queues too, without waiting until the store knows. Not when the pod stops.

        In portions that grow with the pod: each is followed by a beat of all queues of the pod. A
        cancellation leaves those served that the store has taken.

        :raises Unavailable: the store did not take the settings of a queue. The others are served
        """
        refusals: list[BaseException] = []
        names, taken = list(queues), dict[str, QueueSettings | None]()
        try:
            for first in range(0, len(names), _AT_ONCE):
                part = names[first : first + _AT_ONCE]
                answers = await asyncio.gather(
                    *(self._settle(name, queues[name]) for name in part), return_exceptions=True
                )
                for name, answer in zip(part, answers, strict=True):
                    if answer is None:
                        taken[name] = queues[name]
                    else:
                        refusals.append(answer)
                if len(taken) >= len(self.loops) * _GROWS_BY:
                    self._serve(taken)
                    taken = {}
        finally:
            self._serve(taken)
        if refusals:
            raise refusals[0]

    async def _settle(self, name: str, settings: QueueSettings | None) -> None:
        """Declare the settings and limits of a queue."""
        config, limits = self._services.storage.config, self._services.handlers.limits()
        if settings is not None:
            await config.ensure_queue(name, settings)
        if limits.at_most:
            await config.ensure_limits(name, *limits)

    def _serve(self, queues: Mapping[str, QueueSettings | None]) -> None:
        if self._is_closed:
            return
        new = [name for name in queues if name not in self.loops]
        self.declared = {**self.declared, **_chosen(queues, self.declared)}
        for name in new:
            self._make(name)
            self._begin(name)
            if self.heartbeat.quiet:
                self.loops[name].pool.drain(stops=False)
        if new:
            logger.info("serves %s from now on", named(sorted(new)), extra={"queues": new})
            self._share()
            self._declare()

    async def remove(self, name: str) -> None:
        """Serve a queue no longer: claim nothing more, let running handlers end, give up the slots.

        Returns when the store knows. A cancellation of the call does not end the removal.

        :raises ConfigError: the pod stops
        """
        self.exclude(name)
        if leaving := self._leaving.get(name):
            await asyncio.wait([leaving])
        await self._until_known(name, is_there=False)

    def exclude(self, name: str) -> None:
        """Begin to serve the queue no longer."""
        if name in self.loops and name not in self._leaving:
            self._named.discard(name)
            self.loops[name].leaves = True
            leaving = asyncio.ensure_future(self._leave(name))
            self._leaving[name] = leaving
            leaving.add_done_callback(lambda _: self._leaving.pop(name, None))

    def close(self) -> None:
        """Let calls that wait for the store end, because the pod stops."""
        self._is_closed = True
        self._wake_waiters()

    def beat_arrived(self, beat: Beat) -> None:
        """Note which queues of the pod the store knows."""
        if beat.lease_held and beat.queues.keys() != self._known:
            self._known = frozenset(beat.queues) | beat.silent
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise ConfigError(
                "the pod stops, so its queues cannot change any more: name the queue at its next "
                "start"
            )

    def _make(self, name: str) -> None:
        self.loops[name] = QueueLoop(name, self._services)

    def _begin(self, name: str) -> None:
        loop = self.loops[name]
        begun = [
            self._tasks.start(f"{what} {name}", work, serves_the_stop=True)
            for what, work in (("exchange", loop.run), ("set aside", loop.outbox.aside.run))
        ]
        self._of_queue[name] = begun
        self.tasks_over += [each.over for each in begun]

    def _share(self) -> None:
        if self._services.capacity is not None:
            self._services.capacity.share(loop.pool for loop in self.loops.values())

    async def _leave(self, name: str) -> None:
        loop, begun = self.loops[name], self._of_queue[name]
        loop.pool.drain(stops=False)
        while any(True for _ in loop.pool.runs()):
            await Wakeup().wait(_LOOK_EVERY)
        loop.close()
        await asyncio.wait([each.over for each in begun])
        # The claims are gone from here on, and so may the slots be.
        del self.loops[name], self._of_queue[name]
        self.declared = {each: given for each, given in self.declared.items() if each != name}
        self.tasks_over = [over for over in self.tasks_over if not over.done()]
        self._tasks.forget(begun)
        self._share()
        self._declare()
        logger.info("serves queue %s no longer", name, extra={"queue": name})

    def _declare(self) -> None:
        self.declaration.change_queues(tuple(self.declared))
        self._wake_waiters()
        self.heartbeat.wake()

    async def _declare_all(self, storage: Storage) -> None:
        plan = replace(self._plan, queues=self.declared)
        await declare_again(plan, storage, self.declaration.pod.host_id)

    async def _until_known(self, name: str, *, is_there: bool) -> None:
        # Another caller may have changed it back meanwhile.
        while (name in self.declared) is is_there and (name in self._known) is not is_there:
            self._refuse_when_closed()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)


def _chosen(
    given: Mapping[str, QueueSettings | None], before: Mapping[str, QueueSettings | None]
) -> dict[str, QueueSettings | None]:
    """Return the settings that were given, else those of before."""
    return {name: settings or before.get(name) for name, settings in given.items()}


def queue_settings(name: str, given: QueueSettings | int | None) -> QueueSettings | None:
    """Return the settings that a program gives for a queue. None: those of the store.

    :param given: a number is the ``max_workers`` of the whole fleet
    :raises ConfigError: wrong settings
    :raises InvalidInput: a wrong name
    """
    check_queue("queue", name)
    if given is None or isinstance(given, QueueSettings):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ConfigError(f"queue {name}: give max_workers or QueueSettings, not {given!r}")
    try:
        return QueueSettings(max_workers=given)
    except InvalidInput as error:
        raise ConfigError(f"queue {name}: {error}") from None
