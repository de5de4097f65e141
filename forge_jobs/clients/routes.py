"""The queues of kinds whose handler is not at hand, as pods publish them and a client knows
them."""

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from forge_jobs.clock import Clock
from forge_jobs.errors import CONCERNS_ALL, InvalidInput, StorageError, StorageRefused
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.lanes import Lane
from forge_jobs.reports import reporter

logger = reporter(__name__)

KNOWN_FOR_S = 30.0
"""So long a client trusts what pods published of a kind."""

UNKNOWN_FOR_S = 2.0
"""So long a client does not ask again for a kind that no pod has published."""

_ALIKE = 0.85
"""At this ratio of ``difflib`` one or two slips in a kind are caught, but no other word."""

_MOST_NOTED = 1_000


class NotLookedUp(Exception):
    """The published queue of a kind has to be read first."""


class PublishedRoutes:
    """The published kinds and queues of the pods, read from the store when needed.

    A client reads at most once in ``UNKNOWN_FOR_S``. The client keeps the answer when the pods have
    gone, so that jobs go to the right queue while a fleet is down.

    :param read: asks the store
    :param registry: the handlers at hand. A kind that is nearly one of theirs may be misspelt
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[str, str | None]]],
        registry: HandlerRegistry | None,
        *,
        repeat_for: timedelta,
        clock: Clock,
    ) -> None:
        self._read = read
        self._registry = registry
        self._clock = clock
        self._lane: Lane[None, None] = Lane(self._read_once, repeat_for=repeat_for, clock=clock)
        self._queues: dict[str, str | None] = {}
        self._read_at = float("-inf")
        self._alike: dict[str, str | None] = {}
        self._noted: set[str] = set()
        self.as_known = KnownRoutes(self, lambda _: True)
        """Answers with what has been read so far."""
        self.asked = KnownRoutes(self, self._is_fresh)
        """Raises :class:`NotLookedUp` for what has not been read for a while."""

    async def look_up(self) -> None:
        """Read what pods publish now. Callers at one time share the call.

        :raises Unavailable: the store could not be reached for a while
        """
        await self._lane.submit(None)

    def queue_of(self, kind: str) -> str | None:
        """The queue that pods named for the kind."""
        return self._queues.get(kind)

    def is_known(self, kind: str) -> bool:
        """True when a pod has published the kind."""
        return kind in self._queues

    def misspelt(self, kind: str) -> str | None:
        """The kind at hand that ``kind`` is nearly the same as."""
        if self._registry is None:
            return None
        if kind not in self._alike:
            if len(self._alike) >= _MOST_NOTED:
                self._alike.clear()
            near = difflib.get_close_matches(kind, self._registry.kinds(), n=1, cutoff=_ALIKE)
            self._alike[kind] = near[0] if near else None
        return self._alike[kind]

    def note(self, kind: str, message: str, *values: object) -> None:
        """Log a warning about a kind, once."""
        if kind not in self._noted and len(self._noted) < _MOST_NOTED:
            self._noted.add(kind)
            logger.warning(message, *values, extra={"kind": kind})

    def _is_fresh(self, kind: str) -> bool:
        age = self._clock.elapsed() - self._read_at
        return age < (KNOWN_FOR_S if kind in self._queues else UNKNOWN_FOR_S)

    async def _read_once(self, askers: Sequence[None]) -> list[None]:
        try:
            self._queues.update(await self._read())
        except StorageError as error:
            if isinstance(error, CONCERNS_ALL) and not isinstance(error, StorageRefused):
                raise
            # A role that may store jobs need not be allowed to read of pods.
            self.note("", "the queues of kinds cannot be read from the store: %s", error)
        self._read_at = self._clock.elapsed()
        return [None] * len(askers)


class KnownRoutes:
    """:class:`PublishedRoutes` as ``prepare`` asks them, see ``handlers.preparing.Elsewhere``."""

    def __init__(self, routes: PublishedRoutes, may_answer: Callable[[str], bool]) -> None:
        self._routes = routes
        self._may_answer = may_answer

    def queue_of(self, kind: str) -> str | None:
        """The queue that pods name for the kind.

        :raises NotLookedUp: the published queues have to be read first
        :raises InvalidInput: no pod knows the kind, and a handler at hand is called nearly so
        """
        if not self._may_answer(kind):
            raise NotLookedUp
        if not self._routes.is_known(kind) and (near := self._routes.misspelt(kind)):
            raise InvalidInput(
                "kind",
                f"is {kind!r}, which no handler here and no pod runs",
                f"did you mean {near!r}? If not, name the queue",
            )
        return self._routes.queue_of(kind)

    def note_named(self, kind: str, queue: str) -> None:
        """Note that a request names its queue, and warn when the kind seems misspelt all the same.

        :raises NotLookedUp: the published queues have to be read first
        """
        near = self._routes.misspelt(kind)
        if near is None:
            return
        if not self._may_answer(kind):
            raise NotLookedUp
        if not self._routes.is_known(kind):
            self._routes.note(
                kind,
                "a job of kind %r goes to queue %r, but no handler here and no pod runs that "
                "kind; did you mean %r?",
                kind,
                queue,
                near,
            )

    def note_default(self, kind: str, queue: str) -> None:
        """Nothing names a queue for the kind: warn unless pods know the kind."""
        if not self._routes.is_known(kind):
            self._routes.note(
                kind,
                "no pod publishes the kind %r and nothing names its queue: its jobs go to queue "
                "%r; name the queue, give a router, or start a worker that has the handler",
                kind,
                queue,
            )
