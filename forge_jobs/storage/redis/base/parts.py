"""Parts of a cluster that answer: a call over many queues goes on without the silent ones."""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from forge_jobs.errors import StorageRefused, Unavailable
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.driver.errors import TRANSLATED, translate
from forge_jobs.storage.redis.keys import queue_of

logger = reporter(__name__)

T = TypeVar("T")

_NAMED = 5


class Answers(NamedTuple, Generic[T]):
    """The answers to a step over several bases.

    :ivar found: by base
    :ivar silent: why a base did not answer, for those that did not
    """

    found: dict[str, T]
    silent: dict[str, Unavailable]


def unavailable_in(reply: Any) -> Unavailable | None:
    """Return the error, when the reply is that of a server which cannot answer now.

    :raises StorageError: the reply is any other error
    """
    if not isinstance(reply, Exception):
        return None
    error = translate(reply) if isinstance(reply, TRANSLATED) else reply
    if isinstance(error, Unavailable) and not isinstance(error, StorageRefused):
        return error
    raise error


class Silence:
    """The queues that did not answer when they were last asked with others.

    :param fleet: the base of the fleet's own records, which count as the queue ""
    """

    def __init__(self, fleet: str) -> None:
        self._fleet = fleet
        self.queues: frozenset[str] = frozenset()

    def note(self, answered: Iterable[str], silent: Mapping[str, Exception]) -> None:
        """Take note of bases that answered and of those that did not, and log what has changed."""
        before = self.queues
        if not (before or silent):
            return
        now = self.queues = (before - self._queues(answered)) | self._queues(silent)
        if lost := now - before:
            [error, *_] = silent.values()
            logger.warning(
                "%s: no answer; all else goes on, and the store is asked again: %s",
                _in_words(lost),
                error,
            )
        if back := before - now:
            logger.info("%s: the store answers again", _in_words(back))

    def _queues(self, bases: Iterable[str]) -> frozenset[str]:
        # Locators are nobody's queue.
        return frozenset(
            "" if base == self._fleet else queue_of(base) for base in bases if "{@" not in base
        )


def _in_words(queues: Iterable[str]) -> str:
    names = sorted(queues)
    words = [f"queue {name}" if name else "pods, leader and schedules" for name in names[:_NAMED]]
    more = [f"{len(names) - _NAMED} more queues"] if len(names) > _NAMED else []
    return ", ".join(words + more)
