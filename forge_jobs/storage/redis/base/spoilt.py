"""Keys that hold another type than they must, after a change by hand or a restore.

A step that meets such a key ends there, and the writes before it stand. Scripts write in an order
that leaves nothing half stored. The steps of other queues in the same call are not touched.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import ResponseError

from forge_jobs.errors import Unavailable
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.driver.errors import WrongType, translate
from forge_jobs.storage.redis.keys import queue_of

logger = reporter(__name__)

_LOOK_EVERY_S = 1.0
_TYPES = {"hash": "a hash", "zset": "a sorted set", "set": "a set"}

_logged: set[tuple[str, str]] = set()
"""Bases, and what has been logged of them: a pod has several bundles."""

_encode = msgspec.msgpack.encode
_decode_numbers = msgspec.msgpack.Decoder(list[int]).decode
_decode_answers = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class WrongKey(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``key_types.lua`` about a key.

    :param name: what follows the base
    :param wanted: the type that must be there
    :param is_needed: nothing can be done in the queue without the key
    """

    name: str
    wanted: str
    is_needed: bool


class Parted(NamedTuple):
    """A reply that does not answer for every base.

    :ivar packed: the answers of those that are sound
    :ivar sound: bases
    :ivar spoilt: bases that have met a key of another type
    :ivar left: bases for which there was no room in the step
    """

    packed: bytes
    sound: list[str]
    spoilt: list[str]
    left: list[str]


def parted(reply: list[bytes], bases: Sequence[str]) -> Parted:
    """The bases that have answered, and those that have not."""
    packed, *numbers = reply
    spoilt, left = ([bases[number - 1] for number in _decode_numbers(each)] for each in numbers)
    answers = zip(bases, _decode_answers(packed), strict=True)
    without = {*spoilt, *left}
    sound = {base: answer for base, answer in answers if base not in without}
    return Parted(_encode(list(sound.values())), list(sound), spoilt, left)


def wrong_type_in(command: Sequence[Any], reply: Any) -> WrongType | None:
    """The error, when the reply to a command says that of a key of a queue or the fleet."""
    if isinstance(reply, ResponseError) and not is_of_locators(str(command[1])):
        error = translate(reply)
        return error if isinstance(error, WrongType) else None
    return None


def is_of_locators(key: str) -> bool:
    """Return whether a key or base is of locators, which say by their type where they are."""
    return "{@" in key


class SpoiltKeys:
    """The spoilt keys that one bundle knows.

    Nothing is asked of a queue that cannot be worked until a look, at most once a second, has found
    the keys mended: each step could end half way.

    :param fleet: the base of the fleet's own records, of which everything is asked all the same
    :param look: asks for the wrong keys of some bases
    :ivar known: bases with such a key, and the problem
    :ivar stopped: the bases of queues that cannot be worked
    """

    def __init__(
        self,
        fleet: str,
        look: Callable[[Iterable[str]], Awaitable[Mapping[str, Sequence[WrongKey]]]],
        elapsed: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._look = look
        self._elapsed = elapsed
        self._looked_at = 0.0
        self.known: dict[str, str] = {}
        self.stopped: dict[str, WrongType] = {}

    @property
    def reasons(self) -> dict[str, str]:
        """The problems by queue. "" stands for the fleet's own records."""
        return {
            "" if base == self._fleet else queue_of(base): reason
            for base, reason in self.known.items()
        }

    async def look_at(self, bases: Iterable[str]) -> dict[str, str]:
        """Return the problems under any of these bases, by queue."""
        looked_at = await self._look(bases)
        await self.found(base for base, keys in looked_at.items() if keys)
        return self.reasons

    async def found(self, bases: Iterable[str]) -> dict[str, WrongType]:
        """Note that steps under these bases have met such keys. Return the errors to raise."""
        told: dict[str, WrongType] = {}
        for base, keys in (await self._look(bases)).items():
            reason = _reason(base, keys)
            where = self._in_words(base)
            told[base] = WrongType(f"{where} cannot be read: {reason}")
            self.known[base] = reason
            if any(key.is_needed for key in keys):
                self.stopped[base] = told[base]
            if (base, reason) not in _logged:
                _logged.add((base, reason))
                logger.error("%s cannot be read, and all else goes on: %s", where, reason)
        return told

    async def without(
        self, requests: Mapping[str, object], silent: dict[str, Unavailable] | None
    ) -> Mapping[str, object]:
        """Return the requests to queues that can be worked, as far as is known.

        :param silent: gets the others
        :raises WrongType: ``silent`` is None, and one of the queues cannot be worked
        """
        if self._elapsed() - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = self._elapsed()
            for base, keys in (await self._look(list(self.known))).items():
                if not keys:
                    self._forget(base)
        stopped = {base: error for base, error in self.stopped.items() if base in requests}
        if stopped and silent is None:
            raise next(iter(stopped.values()))
        if silent is not None:
            silent.update(stopped)
        return {base: each for base, each in requests.items() if base not in stopped}

    def _forget(self, base: str) -> None:
        """Forget a base: no key that is known by name is wrong any more."""
        reason = self.known.pop(base, "")
        self.stopped.pop(base, None)
        if _OF_A_RECORD not in reason:
            _logged.discard((base, reason))
            logger.info("%s: the keys can be read again", self._in_words(base))

    def _in_words(self, base: str) -> str:
        return "pods, leader and schedules" if base == self._fleet else f"queue {queue_of(base)}"


_OF_A_RECORD = "a key of one of its jobs, minutes or events"


def _reason(base: str, keys: Sequence[WrongKey]) -> str:
    if not keys:
        return f"{_OF_A_RECORD}, below {base}, holds something of another type than it must"
    key = keys[0]
    return (
        f"the key {base}:{key.name} does not hold {_TYPES[key.wanted]}; put back what belongs "
        "there, from a backup"
    )
