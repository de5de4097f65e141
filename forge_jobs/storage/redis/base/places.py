"""Where the locators of a store are: in the hashes of before, on the way, or spread.

Each old hash is moved by itself, and what stands under its key says how far it is:

- a hash, or nothing: all its locators are there, and new ones are written there.
- a string that begins with ``moving``: no locator is written there any more. What has not been
  moved is under ``from``; what has been moved, or is newer, is where it belongs, and counts for
  more. A locator is copied before it is taken away, so who looks under ``from`` first misses none.
- ``moved``: nothing is left. ``all from=N``: of no old hash; and programs from version N on work
  with the store.

The string is what holds programs off that know nothing of this: a hash is what they ask for, and
the server refuses that. So does it with a program that has not heard yet; that one looks, and does
its step again. See ``moving.py`` for who moves.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from forge_jobs.storage.redis.keys import OLD_HASHES, Keys, old_hash

_LOOK_EVERY_S = 1.0


class State(IntEnum):
    """How far an old hash is. It never goes back, unless a failover has undone it."""

    OLD = 0
    MOVING = 1
    MOVED = 2


class Places:
    """What one process knows of it. A store is one of before until the contrary is known."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._states = [State.OLD] * OLD_HASHES
        self._looked_at = 0.0
        self.is_said = False
        """It stands under a key of an old hash that nothing is left in any."""

    def is_due(self, elapsed: float) -> bool:
        """Whether to look anew, at most once a second.

        :param elapsed: seconds that go on
        """
        is_due = elapsed - self._looked_at >= _LOOK_EVERY_S
        self._looked_at = elapsed if is_due else self._looked_at
        return is_due

    def note(self, states: Mapping[int, str]) -> None:
        """Take note of what stands under the keys of old hashes."""
        for number, text in states.items():
            self._states[number] = _state_of(text)
        if any(text.startswith("all ") for text in states.values()):
            self.is_said = True
            self._states = [State.MOVED] * OLD_HASHES

    @property
    def states(self) -> tuple[State, ...]:
        """How far each is."""
        return tuple(self._states)

    @property
    def moved(self) -> int:
        """How many old hashes have nothing left."""
        return self._states.count(State.MOVED)

    @property
    def is_under_way(self) -> bool:
        """Some are moved, or on the way, and others are not."""
        return any(self._states) and not self.are_spread

    @property
    def are_spread(self) -> bool:
        """Nothing is left in any old hash."""
        return self.moved == OLD_HASHES

    def in_words(self, *, is_cluster: bool) -> str:
        """How far the locators are, for people; '' when they are where they should be."""
        if self.is_under_way:
            return (
                f"locators: {self.moved} of {OLD_HASHES} hashes are moved; the pod that leads goes "
                "on with the others"
            )
        if is_cluster and not self.are_spread:
            return (
                f"locators lie in {OLD_HASHES} hashes, so that one server may have half of them; "
                "when no older program is left run 'forge-jobs migrate up', and pods spread them"
            )
        return ""

    def state(self, job_id: str) -> State:
        """How far the old hash of an id is."""
        return self._states[old_hash(job_id)]

    def of(self, job_id: str) -> str:
        """The hash that the locator of an id is written to."""
        if self.state(job_id) is State.OLD:
            return f"{self._keys.old_locators(old_hash(job_id))}:ids"
        return self._keys.locators(job_id)

    def source(self, job_id: str) -> str:
        """The hash to look at before :meth:`of`, which counts for more; '' for none."""
        if self.state(job_id) is State.MOVING:
            return f"{self._keys.old_locators(old_hash(job_id))}:from"
        return ""

    def hashes(self, number: int) -> list[str]:
        """Where the locators of an old hash are, but for those on the way."""
        if self._states[number] is State.OLD:
            return [f"{self._keys.old_locators(number)}:ids"]
        return self._keys.all_locators(number)

    def old_bases(self) -> dict[str, int]:
        """The bases of all old hashes, with their numbers."""
        return {self._keys.old_locators(number): number for number in range(OLD_HASHES)}


class KnownOfStore:
    """What the bundles of one store share.

    :ivar problem: why the store must not be used any more; see ``late_check.py``
    """

    def __init__(self, keys: Keys) -> None:
        self.places = Places(keys)
        self.problem = ""


def by_place(places: Places, ids: Iterable[str]) -> dict[str, list[str]]:
    """Ids by the hash that their locators are written to."""
    found: dict[str, list[str]] = {}
    for job_id in ids:
        found.setdefault(places.of(job_id), []).append(job_id)
    return found


def _state_of(text: str) -> State:
    if text.startswith("moving"):
        return State.MOVING
    return State.MOVED if text == "moved" or text.startswith("all ") else State.OLD
