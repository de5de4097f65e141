"""Relays letters: brings jobs that a store has written down for another queue into that queue."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from forge_jobs import stop_points
from forge_jobs.errors import StorageError
from forge_jobs.model.letters import Letter
from forge_jobs.outages import Outage
from forge_jobs.reports import reporter
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.shared.failure_texts import failure_of
from forge_jobs.storage.protocols import JobStore

logger = reporter(__name__)

LETTER_BATCH = 500


class RelayReport(Struct, frozen=True):
    """The result of one pass.

    :param relayed: letters whose jobs are stored
    :param away: queues whose part of the store does not take the letters
    """

    relayed: int
    away: tuple[str, ...] = ()


class LetterRelay:
    """Passes of the relay. Any number of pods may relay at a time: each letter is stored once.

    A letter that the store alone refuses is sent again with growing pauses, and delays no other. A
    queue whose part of the store is silent delays its own letters only.

    :param letters: where the letters are written
    :param jobs: where the letters are to be stored
    :param sender: remembers letters that were refused
    """

    def __init__(
        self, letters: JobStore, jobs: JobStore, sender: BisectingSender | None = None
    ) -> None:
        self._letters = letters
        self._jobs = jobs
        self._sender = BisectingSender("the letter") if sender is None else sender
        self._outages: defaultdict[str, Outage] = defaultdict(Outage)

    async def relay_once(self, batch: int = LETTER_BATCH) -> RelayReport:
        """Relay all letters that wait. Each letter is sent once in a pass.

        What a pass remembers, and names to the store, is what the store keeps: not the letters that
        are gone. So the work of a pass grows as the number of letters.
        """
        relayed = 0
        away: set[str] = set()
        kept: set[str] = set()
        before: set[str] = set()
        while True:
            found = await self._letters.letters(
                batch, skip=kept | set(map(str, self._sender.waiting)), not_to=away
            )
            if not found:
                return RelayReport(relayed, tuple(sorted(away)))
            if stop_points.ARMED:
                await stop_points.reach("letters:read")
            # A letter that comes again lies in a part that has fallen silent since.
            kept |= before.intersection(map(_key, found))
            by_queue: defaultdict[str, list[Letter]] = defaultdict(list)
            for letter in found:
                if letter.id not in kept:
                    by_queue[letter.job.queue].append(letter)
            for queue, letters in by_queue.items():
                try:
                    relayed += sum(await self._sender.send(letters, self._relay, _key))
                except StorageError as error:
                    away.add(queue)
                    self._log_away(queue, error)
                else:
                    self._log_back(queue)
            before = set(map(_key, found))
            kept |= before.intersection(map(str, self._sender.waiting))

    async def _relay(self, letters: Sequence[Letter]) -> int:
        await self._jobs.enqueue([letter.job for letter in letters])
        if stop_points.ARMED:
            await stop_points.reach("letters:stored")
        await self._letters.forget_letters(letters)
        if stop_points.ARMED:
            await stop_points.reach("letters:committed")
        return len(letters)

    def _log_away(self, queue: str, error: StorageError) -> None:
        if self._outages[queue].is_new(type(error).__name__):
            logger.warning(
                "dead letters for queue %r are not stored yet, and are tried again; those for "
                "other queues go on: %s: %s",
                queue,
                failure_of(error),
                error,
            )

    def _log_back(self, queue: str) -> None:
        outage = self._outages.pop(queue, None)
        if outage is not None and outage.is_over():
            logger.info("dead letters for queue %r are stored again", queue)


def _key(letter: Letter) -> str:
    """Return the key of a letter, which is also its name in the log."""
    return letter.id
