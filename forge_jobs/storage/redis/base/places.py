"""Where the locators of a store are: in the old hashes, on the way, or spread.

Each old hash is moved by itself. The value under the key of the hash says how far the move is:

- a hash, or nothing: all locators are there, and new ones are written there.
- a string that begins with ``moving``: no locator is written there any more. Locators that have not
  been moved are under ``from``. Those that have been moved, or are newer, are in their final hash,
  and count for more. A locator is copied before the old one is taken away, so a reader who looks
  under ``from`` first misses none.
- ``moved``: nothing is left. ``all from=N``: no old hash has anything left, and programs from
  version N on work with the store.

The string stops programs that know nothing of the move: they ask for a hash, and the server refuses
a string. The server also refuses a program that has not yet heard of the move. Such a program looks
at the key, and repeats its step. See ``moving.py`` for who moves.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.keys import OLD_HASHES, Keys, old_hash

_LOOK_EVERY_S = 1.0


class State(IntEnum):
    """How far an old hash is. A stage never goes back, unless a failover has undone a step."""

    OLD = 0
    MOVING = 1
    MOVED = 2


class Places:
    """The stage as one process knows it. A store is unmoved until the contrary is known."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._states = [State.OLD] * OLD_HASHES
        self._looked_at = 0.0
        self.is_said = False
        """The key of an old hash says that no old hash has anything left."""

    def is_due(self, elapsed: float) -> bool:
        """Return whether to look anew, at most once a second.

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
        """Say for people how far the locators are, '' when all are in their final hashes."""
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
        """Return the hash to look at before :meth:`of`, which counts for more. '' for none."""
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
    """Knowledge that the bundles of one store share.

    :ivar problem: why the store must not be used any more. See ``late_check.py``
    :ivar queues_of: queues of jobs that were found without their locators. See ``asking.py``
    :ivar publish: the command that publishes to a queue's channel. All programs hear ``PUBLISH``
    """

    def __init__(self, keys: Keys) -> None:
        self.places = Places(keys)
        self.problem = ""
        self.queues_of: dict[JobId, str] = {}
        self.publish = "PUBLISH"


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
